"""The common base of the offset index and the time index: fixed-size entries in a mapped file.

While an index is written, its file has the full size (`segment.index.bytes`), with a hole of zeros
after the entries; it is truncated to its entries when the segment is rolled or closed. After a
crash the file may therefore have its full size, and the zeros count as entries: like Kafka, the
index derives the number of entries from the size. Nothing in the file shows the difference; the
log knows that it was not closed and rebuilds the indexes of the segments it recovers.

A sealed index is mapped at its first lookup, not when it is opened: most segments of a large log
are never read.
"""

import errno
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeAlias

from penstock.storage.disk import Disk, MappedFile

_FIRST_STEP = 4 << 10
_LARGEST_STEP = 64 << 10
_WARM_BYTES = 8192
MAX_RELATIVE_OFFSET = 0x7FFFFFFF

_Bytes: TypeAlias = mmap.mmap | bytearray | bytes
_UNMAPPED = b""


class CorruptIndexError(Exception):
    """An index file is invalid; it is rebuilt from the `.log` file."""


class InvalidOffsetError(ValueError):
    """A new entry is not after the last one, or is too far from the base offset."""


class MappedIndex(ABC):
    """Sorted entries of `entry_size` bytes, appended at the end and found by bisection.

    With `writable=False` the file is neither created nor trimmed; `dump-log` uses that.
    """

    entry_size: ClassVar[int]

    __slots__ = (
        "_buffer",
        "_disk",
        "_entries",
        "_length",
        "_mapping",
        "_max_entries",
        "_reserved",
        "_step",
        "base_offset",
        "is_unsynced",
        "is_used",
        "max_bytes",
        "path",
        "writable",
    )

    def __init__(
        self, disk: Disk, path: str, base_offset: int, max_bytes: int, *, writable: bool = True
    ) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.max_bytes = max_bytes
        self.writable = writable
        self.is_used = False
        """Whether the mapping was used since the file cache last looked at it."""
        self.is_unsynced = False
        """Whether entries were added since the last `flush`, so that it must stay mapped."""
        self._mapping: MappedFile | None = None
        self._buffer: _Bytes = _UNMAPPED
        self._reserved = 0
        self._step = _FIRST_STEP
        if not writable or disk.exists(path):
            self._length = disk.size(path)
            self._entries = self._length // self.entry_size
        else:
            if max_bytes < self.entry_size:
                raise ValueError(
                    f"an index of {max_bytes} bytes cannot have an entry of {self.entry_size}: "
                    f"raise segment.index.bytes"
                )
            self._length = max_bytes - max_bytes % self.entry_size
            self._entries = 0
            self._set_length(self._length, create=True)
        self._max_entries = self._length // self.entry_size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, {self._entries}/{self.max_entries} entries)"

    @property
    def entries(self) -> int:
        return self._entries

    @property
    def max_entries(self) -> int:
        """The number of entries that fit into the file at its current length."""
        return self._max_entries

    @property
    def is_full(self) -> bool:
        return self._entries >= self._max_entries

    @property
    def size_in_bytes(self) -> int:
        """The number of bytes of the entries."""
        return self._entries * self.entry_size

    @property
    def length(self) -> int:
        """The number of bytes of the file, including the empty slots."""
        return self._length

    @abstractmethod
    def truncate_to(self, offset: int) -> None:
        """Drops the entries at or above this offset."""

    def truncate(self) -> None:
        """Drops all entries; the file keeps its length."""
        self._truncate_to_entries(0)

    def sanity_check(self) -> None:
        """Raises `CorruptIndexError` if the last entry or the length is invalid."""
        if self._length % self.entry_size:
            raise CorruptIndexError(
                f"{self.path} has {self._length} bytes, not a multiple of {self.entry_size}"
            )

    def resize(self, size: int) -> bool:
        """Changes the length of the file, rounded down to whole entries.

        Returns whether it changed. An active segment has indexes of full length; those of a
        sealed segment are trimmed.
        """
        size -= size % self.entry_size
        if size == self._length:
            return False
        if size < self.size_in_bytes:
            raise ValueError(f"{self.path} has {self._entries} entries, {size} bytes are too few")
        self.close_handle()
        self._set_length(size)
        self._length = size
        self._max_entries = size // self.entry_size
        return True

    def _set_length(self, size: int, *, create: bool = False) -> None:
        file = self._disk.open(self.path, create=create)
        try:
            file.truncate(size)
        finally:
            file.close()

    def trim(self) -> None:
        """Removes the empty slots from the file."""
        if self.writable:
            self.resize(self.size_in_bytes)

    def reset(self) -> None:
        """Drops all entries and extends the file to its full length, before a rebuild."""
        self.truncate()
        self.resize(self.max_bytes)

    def flush(self) -> None:
        """Makes the entries durable. May run on any thread at any time.

        It opens the file itself: a sync also covers what was written through a mapping, and no
        other thread can close the handle.
        """
        file = self._disk.open(self.path)
        self.is_unsynced = False
        try:
            file.sync()
        except BaseException:
            self.is_unsynced = True
            raise
        finally:
            file.close()
        self._disk.file_cache.notify_synced()

    def close_handle(self) -> None:
        """Closes the mapping without trimming; the next lookup maps the file again."""
        mapping, self._mapping = self._mapping, None
        self._buffer = _UNMAPPED
        self._reserved = 0
        if mapping is not None:
            self.is_unsynced = False
            mapping.close()
            self._disk.file_cache.discard(self)

    def close(self) -> None:
        """Trims the file and closes it. It does not flush."""
        try:
            self.trim()
        finally:
            self.close_handle()

    def delete(self) -> None:
        """Removes the file if it exists."""
        self.close_handle()
        self._length = self._max_entries = 0
        self._truncate_to_entries(0)
        self._disk.remove(self.path)

    def rename_to(self, path: str) -> None:
        """Renames the file, unless it already has the new name."""
        if self._disk.exists(self.path) or not self._disk.exists(path):
            self._disk.rename(self.path, path)
        self.path = path

    # --- mapping

    def release(self) -> bool:
        """Unmaps the file unless entries were added since the last sync. Called by the file cache.

        It may run on any thread: the owner of the index keeps the mapping that it is using.
        """
        if self.is_unsynced:
            return False
        mapping, buffer = self._mapping, self._buffer
        self._reserved = 0
        self._buffer = _UNMAPPED
        self._mapping = None
        # The owner may have added an entry in between: it sets the flag, then looks at the buffer.
        if self.is_unsynced:
            self._mapping, self._buffer = mapping, buffer
            return False
        return True

    def _map(self, *, may_exceed: bool = False, reserve: int = 0) -> _Bytes:
        """Returns the content; it stays mapped if there is room in the file cache."""
        if self._length == 0:
            return _UNMAPPED
        if not self.writable:
            self._buffer = self._disk.read_file(self.path)
            return self._buffer
        mapping = self._disk.map(self.path, self._length, reserve=reserve)
        buffer = mapping.buffer
        self._mapping, self._buffer = mapping, buffer
        if not self._disk.file_cache.add(self, may_exceed=may_exceed):
            self._mapping, self._buffer = None, _UNMAPPED
        return buffer

    def reserve_entries(self, count: int) -> None:
        """Reserves space for `count` more entries, or for all that fit: adding them cannot fail."""
        self.is_unsynced = True  # it stays mapped
        end = min((self._entries + count) * self.entry_size, self._length)
        if end > self._reserved:
            self._reserve(end)

    @property
    def has_reserved_entry(self) -> bool:
        """Whether another entry can be added without a call of the disk."""
        return self.is_unsynced and (self._entries + 1) * self.entry_size <= self._reserved

    def _reserve(self, end: int, *, may_exceed: bool = False) -> _Bytes:
        """Allocates disk blocks for the bytes below `end`, before a write; returns the content.

        Raises EMFILE if there is no room in the file cache, unless it `may_exceed` its limit.
        """
        if not self.writable:
            raise ValueError(f"{self.path} is open for reading only")
        if end > self._length:
            raise ValueError(f"{self.path} is full: it has {self._entries} entries")
        size = min(max(self._reserved + self._step, end), self._length)
        self.is_unsynced = True  # it stays mapped
        mapping = self._mapping
        if mapping is not None:
            mapping.reserve(self.path, size)
        else:
            try:
                self._map(may_exceed=may_exceed, reserve=size)
            finally:
                mapping = self._mapping
                self.is_unsynced = mapping is not None
        if mapping is None:
            raise OSError(
                errno.EMFILE,
                f"all {self._disk.file_cache.limit} files that may stay open have unsynced data",
                self.path,
            )
        self._reserved = size
        self._step = min(self._step * 2, _LARGEST_STEP)
        return mapping.buffer

    def _truncate_to_entries(self, entries: int) -> None:
        self._entries = entries

    def _count_up_to(
        self, target: int, field: Callable[[_Bytes, int], tuple[int, ...]], at: int
    ) -> int:
        """Returns how many entries have a field (at byte `at`) that is at most `target`.

        The end of the index is searched first: followers and most consumers read there, so its
        pages are in the page cache, while a plain bisection would touch cold pages.
        """
        high = self._entries
        if high == 0:
            return 0
        self.is_used = True
        buffer = self._buffer or self._map()
        size = self.entry_size
        low = 0
        warm = high - 1 - _WARM_BYTES // size
        if warm > 0:
            if field(buffer, warm * size + at)[0] <= target:
                low = warm + 1
            else:
                high = warm
        while low < high:
            middle = (low + high) >> 1
            if field(buffer, middle * size + at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low
