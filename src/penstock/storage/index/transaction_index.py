"""The transaction index: the aborted transactions whose markers are in a segment.

An entry has 34 bytes: version 0 (int16), then producer id, first offset, last offset (that of
the marker) and the last stable offset at the time of the abort (int64 each).
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from penstock.storage.disk import Disk
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.file_cache import CachedFile
from penstock.storage.index.mapped_index import CorruptIndexError

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The `.txnindex` file of one segment. The first append creates it."""

    __slots__ = ("_disk", "_file", "_last_offset", "_size", "_unwritten", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._file: CachedFile | None = None
        self._size = disk.size(path) if disk.exists(path) else -1
        self._last_offset: int | None = None
        self._unwritten: list[AbortedTxn] = []
        """Entries for which the disk has no room yet. Their markers are in the log."""

    def append(self, txn: AbortedTxn) -> None:
        """Adds an entry. The last offset must be larger than that of the last entry.

        Without room on the disk the entry is kept in memory, and written with the next one or by
        `flush`.
        """
        if self._last_offset is not None and txn.last_offset <= self._last_offset:
            raise ValueError(
                f"aborted transaction ends at offset {txn.last_offset}, which is not after "
                f"{self._last_offset}, the last one in {self.path}"
            )
        self._unwritten.append(txn)
        self._last_offset = txn.last_offset
        try:
            self._write()
        except OSError as error:
            if not is_lack_of_room(error):
                raise

    def _write(self) -> None:
        # A torn entry at the end is overwritten; otherwise all later entries would be misread.
        at = max(self._size - self._size % _ENTRY.size, 0)
        data = b"".join(_ENTRY.pack(_VERSION, *txn) for txn in self._unwritten)
        self._open_file().write_at(data, at)
        # In this order: the event loop may read while a flush writes, and must not miss an entry.
        self._size = at + len(data)
        self._unwritten = []

    def collect_aborted(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """Returns the aborted transactions that overlap `fetch_offset <= offset < upper_bound`.

        The second value is True if no later segment can contain another one.
        """
        aborted: list[AbortedTxn] = []
        for txn in self._read():
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
                aborted.append(txn)
            if txn.last_stable_offset >= upper_bound:
                return aborted, True
        return aborted, False

    def all(self) -> list[AbortedTxn]:
        return list(self._read())

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or above this offset."""
        last: int | None = None
        for n, txn in enumerate(self._read()):
            if txn.last_offset >= offset:
                size = n * _ENTRY.size
                if self._size > size:
                    self._open_file().truncate(size)
                    self._size = size
                self._unwritten = [txn for txn in self._unwritten if txn.last_offset < offset]
                self._last_offset = last
                return
            last = txn.last_offset

    def reset(self) -> None:
        """Drops all entries, before a rebuild."""
        if self._size > 0:
            self._open_file().truncate(0)
            self._size = 0
        self._unwritten = []
        self._last_offset = None

    def sanity_check(self) -> None:
        """Raises `CorruptIndexError` if an entry or the length is invalid."""
        if self._size > 0 and self._size % _ENTRY.size:
            raise CorruptIndexError(
                f"{self.path} has {self._size} bytes, not a multiple of {_ENTRY.size}"
            )
        for txn in self._read():
            if txn.last_offset < self.base_offset:
                raise CorruptIndexError(
                    f"{self.path} has {txn}, which ends below its base offset {self.base_offset}"
                )

    def flush(self) -> None:
        """Makes the entries durable. May run on any thread once the segment is sealed."""
        if self._unwritten:
            self._write()
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def delete(self) -> None:
        """Removes the file if it exists."""
        self.close()
        self._size = -1
        self._unwritten = []
        self._last_offset = None
        self._disk.remove(self.path)

    def rename_to(self, path: str) -> None:
        """Renames the file if it exists, unless it already has the new name."""
        old = self.path
        self.update_path(path)
        if self._size >= 0 and self._disk.exists(old):
            self._disk.rename(old, path)

    def update_path(self, path: str) -> None:
        """Uses `path` from now on: the file has this name, or is about to get it."""
        self.path = path
        if self._file is not None:
            self._file.path = path

    def _open_file(self) -> CachedFile:
        if self._file is None:
            self._file = CachedFile(self._disk, self.path, create=True)
            self._size = max(self._size, 0)
        return self._file

    def _read(self) -> Iterator[AbortedTxn]:
        unwritten = self._unwritten
        if self._size >= _ENTRY.size:
            yield from self._read_file()
        yield from unwritten

    def _read_file(self) -> Iterator[AbortedTxn]:
        size = self._size - self._size % _ENTRY.size
        data = self._open_file().read_at(0, size)
        if len(data) < size:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes where {size} were written")
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise CorruptIndexError(
                    f"{self.path} has an entry of version {version}; {_VERSION} is the only one"
                )
            yield AbortedTxn(producer_id, first, last, stable)
