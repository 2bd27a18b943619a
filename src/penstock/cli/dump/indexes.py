"""Dumps of the indexes of a segment, with each entry checked against the log.

An index that is being written, or was when the broker crashed, has its full size with zeros after
its entries. These empty slots are only counted.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from struct import Struct
from typing import TypeAlias

from penstock.cli.dump.items import ENTRY, SUMMARY, Item, note, problem
from penstock.core.errors import CorruptRecordError, KafkaError
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.control import ControlType, read_end_txn_marker
from penstock.storage.disk import File
from penstock.storage.segment.batch_scan import find_batch, header_at

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
TXN_ENTRY = Struct(">hqqqq")

_TXN_FIELDS = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
_OUT_OF_ORDER = "does not come after the entry before it"
_BLOCK = 64 * 1024

_Examined: TypeAlias = tuple[dict[str, int], str]
"""The fields of an entry, and what is wrong with it, if anything."""


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
    previous = (-1, -1)

    def examine(entry: tuple[int, ...]) -> _Examined:
        nonlocal previous
        (relative, position), before = entry, previous
        previous = relative, position
        fields = {"offset": base_offset + relative, "position": position}
        if relative <= before[0] or position <= before[1]:
            return fields, _OUT_OF_ORDER
        return fields, "" if log is None else _wrong_position(log, **fields)

    yield from _dump(file, OFFSET_ENTRY, "index", log, mode, examine)


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
    lookup = None if log is None else _BatchLookup(log)
    previous = (-1, -1)

    def examine(entry: tuple[int, ...]) -> _Examined:
        nonlocal previous
        (timestamp, relative), before = entry, previous
        previous = timestamp, relative
        fields = {"timestamp": timestamp, "offset": base_offset + relative}
        if timestamp <= before[0] or relative < before[1]:
            return fields, _OUT_OF_ORDER
        return fields, "" if lookup is None else _wrong_timestamp(lookup, **fields)

    yield from _dump(file, TIME_ENTRY, "time index", log, mode, examine)


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
    lookup = None if log is None else _BatchLookup(log)
    previous = base_offset - 1

    def examine(entry: tuple[int, ...]) -> _Examined:
        nonlocal previous
        version, producer_id, first, last, _ = entry
        before, previous = previous, last
        fields = dict(zip(_TXN_FIELDS, entry, strict=True))
        if version != 0:
            return fields, f"has version {version}, 0 is the only one"
        if last <= before:
            return fields, f"ends at or below offset {before}"
        if first >= last:
            return fields, "ends before it starts"
        return fields, "" if lookup is None else _wrong_marker(lookup, producer_id, last)

    yield from _dump(file, TXN_ENTRY, "transaction index", log, mode, examine)


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

    def __init__(self) -> None:
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


def _dump(
    file: File,
    layout: Struct,
    title: str,
    log: File | None,
    mode: IndexMode,
    examine: Callable[[tuple[int, ...]], _Examined],
) -> Iterator[Item]:
    """Yields the entries of an index as the mode says, the problems, and a summary."""
    count = _Count()
    for entry in _entries(file, layout, count):
        fields, wrong = examine(entry)
        if mode is IndexMode.SHOW:
            yield Item(ENTRY, fields)
        if wrong:
            count.problems += 1
            yield problem(f"{title} entry {wrong}", **fields)
    torn = file.size() % layout.size
    if torn:
        count.problems += 1
        yield problem(
            f"the file has {file.size()} bytes, which is not a multiple of {layout.size}: "
            f"its last entry is cut off",
            remainingBytes=torn,
        )
    if log is None and count.entries:
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


def _entries(file: File, entry: Struct, count: _Count) -> Iterator[tuple[int, ...]]:
    """Yields the entries; of a sparse index those up to the last that is not zero."""
    sparse = entry is not TXN_ENTRY
    size = file.size() - file.size() % entry.size
    step = _BLOCK - _BLOCK % entry.size
    empty: tuple[int, ...] = (0,) * len(entry.unpack(bytes(entry.size)))
    waiting = 0
    for position in range(0, size, step):
        data = file.read_at(position, min(step, size - position))
        for values in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
            if sparse and values == empty:
                waiting += 1
                continue
            # Zeros between entries are invalid entries; zeros at the end are empty slots.
            for _ in range(waiting):
                count.entries += 1
                yield empty
            waiting = 0
            count.entries += 1
            yield values
    # A batch with timestamp 0 and only the base offset has an entry of zeros.
    if waiting == 1 and entry is TIME_ENTRY and not count.entries:
        count.entries, waiting = 1, 0
        yield empty
    count.empty = waiting
