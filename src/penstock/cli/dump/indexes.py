"""Dumps of the indexes of a segment, with each entry checked against the log.

An index that is still written to, or was when the broker died, has its full size with zeros behind
its entries. Those are empty slots and are only counted.
"""

from collections.abc import Iterator
from enum import Enum, auto
from struct import Struct

from penstock.cli.dump.items import ENTRY, SUMMARY, Item, note, problem
from penstock.core.errors import CorruptRecordError, KafkaError
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.control import ControlType, read_end_txn_marker
from penstock.storage.disk import File
from penstock.storage.segment.batch_scan import find_batch, header_at

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
TXN_ENTRY = Struct(">hqqqq")

_BLOCK = 64 * 1024


class IndexMode(Enum):
    """What is shown of an index."""

    SHOW = auto()
    """Its entries and their problems."""
    VERIFY = auto()
    """Only problems of its entries."""
    SANITY = auto()
    """Only whether a broker would rebuild it when it starts."""


def dump_offset_index(
    file: File, base_offset: int, log: File | None, mode: IndexMode
) -> Iterator[Item]:
    """Yields the entries of an `.index` file.

    Each must name the last offset of the batch at its position.
    """
    count = _Count(log)
    previous = (-1, -1)
    for relative, position in _entries(file, OFFSET_ENTRY, count):
        offset = base_offset + relative
        if mode is IndexMode.SHOW:
            yield Item(ENTRY, {"offset": offset, "position": position})
        wrong = ""
        if relative <= previous[0] or position <= previous[1]:
            wrong = "does not come after the entry before it"
        elif log is not None:
            wrong = _wrong_position(log, offset, position)
        if wrong:
            count.problems += 1
            yield problem(f"index entry {wrong}", offset=offset, position=position)
        previous = (relative, position)
    yield from _end(file, OFFSET_ENTRY, count, mode)


def _wrong_position(log: File, offset: int, position: int) -> str:
    size = log.size()
    if not 0 <= position < size:
        return f"points behind the log, which has {size} bytes"
    try:
        header = _header(log, position)
    except CorruptRecordError as error:
        return f"points to no batch: {error.message}"
    if header.last_offset != offset:
        return f"names another offset than the batch there, which ends at {header.last_offset}"
    return ""


def _header(log: File, position: int) -> BatchHeader:
    return header_at(memoryview(log.read_at(position, HEADER_SIZE)), 0)


def dump_time_index(
    file: File, base_offset: int, log: File | None, mode: IndexMode
) -> Iterator[Item]:
    """Yields the entries of a `.timeindex` file.

    Each must name the largest timestamp and the last offset of one batch, and both must rise.
    """
    count = _Count(log)
    lookup = None if log is None else _BatchLookup(log)
    previous = (-1, -1)
    for timestamp, relative in _entries(file, TIME_ENTRY, count):
        offset = base_offset + relative
        if mode is IndexMode.SHOW:
            yield Item(ENTRY, {"timestamp": timestamp, "offset": offset})
        wrong = ""
        if timestamp <= previous[0] or relative < previous[1]:
            wrong = "does not come after the entry before it"
        elif lookup is not None:
            wrong = _wrong_timestamp(lookup, timestamp, offset)
        if wrong:
            count.problems += 1
            yield problem(f"time index entry {wrong}", timestamp=timestamp, offset=offset)
        previous = (timestamp, relative)
    yield from _end(file, TIME_ENTRY, count, mode)


def _wrong_timestamp(lookup: "_BatchLookup", timestamp: int, offset: int) -> str:
    try:
        header = lookup.batch_that_holds(offset)
    except CorruptRecordError as error:
        return f"cannot be checked, the log is broken before it: {error.message}"
    if header is None:
        return "names an offset that the log does not have"
    if header.last_offset != offset:
        return f"names an offset within a batch, which ends at {header.last_offset}"
    if header.max_timestamp != timestamp:
        return f"names another timestamp than the batch there, which has {header.max_timestamp}"
    return ""


def dump_txn_index(
    file: File, base_offset: int, log: File | None, mode: IndexMode
) -> Iterator[Item]:
    """Yields the entries of a `.txnindex` file.

    Each must end with its producer's abort marker in the log. Compaction may have removed the
    marker, so an entry without one is not wrong.
    """
    count = _Count(log)
    lookup = None if log is None else _BatchLookup(log)
    previous = base_offset - 1
    for version, producer_id, first, last, stable in _entries(file, TXN_ENTRY, count, sparse=False):
        fields = {
            "version": version,
            "producerId": producer_id,
            "firstOffset": first,
            "lastOffset": last,
            "lastStableOffset": stable,
        }
        if mode is IndexMode.SHOW:
            yield Item(ENTRY, fields)
        wrong = ""
        if version != 0:
            wrong = f"has version {version}, 0 is the only one"
        elif last <= previous:
            wrong = f"ends at or below offset {previous}"
        elif first >= last:
            wrong = "ends before it starts"
        elif lookup is not None:
            wrong = _wrong_marker(lookup, producer_id, last)
        if wrong:
            count.problems += 1
            yield problem(f"transaction index entry {wrong}", **fields)
        previous = last
    yield from _end(file, TXN_ENTRY, count, mode)


def _wrong_marker(lookup: "_BatchLookup", producer_id: int, offset: int) -> str:
    try:
        header = lookup.batch_that_holds(offset)
        if header is None or header.last_offset != offset:
            return ""
        if not header.is_control or header.producer_id != producer_id:
            return "ends where the log has no marker of that producer"
        marker = read_end_txn_marker(lookup.bytes_of(header), 0, header)
    except KafkaError as error:
        return f"cannot be checked, the log is broken: {error.message}"
    if marker.control_type is not ControlType.ABORT:
        return "ends with a marker that does not abort"
    return ""


class _Count:
    """Counters of the entries of an index."""

    def __init__(self, log: File | None) -> None:
        self.checked = log is not None
        self.entries = 0
        self.empty = 0
        self.problems = 0


class _BatchLookup:
    """Finds batches of a log in the order of their offsets, in one pass over it."""

    def __init__(self, log: File) -> None:
        self._log = log
        self._size = log.size()
        self._position = 0
        self._offset = -1

    def batch_that_holds(self, offset: int) -> BatchHeader | None:
        """Returns the first batch that ends at or after the offset."""
        if offset < self._offset:
            self._position = 0
        batch = find_batch(self._log, self._position, self._size, offset)
        if batch is None:
            return None
        self._position, self._offset = batch.position, offset
        return _header(self._log, batch.position)

    def bytes_of(self, header: BatchHeader) -> bytes:
        """Returns the bytes of the batch that was looked up last."""
        return self._log.read_at(self._position, header.size)


def _entries(
    file: File, entry: Struct, count: _Count, *, sparse: bool = True
) -> Iterator[tuple[int, ...]]:
    """Yields the entries; of a sparse index those up to the last that is not zero."""
    size = file.size() - file.size() % entry.size
    step = _BLOCK - _BLOCK % entry.size
    empty: tuple[int, ...] = (0,) * len(entry.unpack(bytes(entry.size)))
    waiting = 0
    for position in range(0, size, step):
        data = file.read_at(position, min(step, size - position))
        for result in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
            if sparse and result == empty:
                waiting += 1
                continue
            # Zeros between entries are entries, and wrong ones; only those at the end are none.
            for _ in range(waiting):
                count.entries += 1
                yield empty
            waiting = 0
            count.entries += 1
            yield result
    # A batch that has timestamp 0 and the base offset alone makes an entry of zeros.
    if waiting == 1 and entry is TIME_ENTRY and not count.entries:
        count.entries, waiting = 1, 0
        yield empty
    count.empty = waiting


def _end(file: File, entry: Struct, count: _Count, mode: IndexMode) -> Iterator[Item]:
    torn = file.size() % entry.size
    if torn:
        count.problems += 1
        yield problem(
            f"the file has {file.size()} bytes, which is not a multiple of {entry.size}: "
            f"its last entry is cut off",
            remainingBytes=torn,
        )
    if not count.checked and count.entries:
        unchecked = "there is no log file beside it to check the entries against"
        if mode is IndexMode.VERIFY:
            count.problems += 1
            yield problem(unchecked)
        else:
            yield note(unchecked)
    yield Item(
        SUMMARY,
        {"entries": count.entries, "emptySlots": count.empty, "problems": count.problems},
    )
