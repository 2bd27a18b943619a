"""Walking over the batches of a `.log` file, by their headers alone.

Two ways. `scan` reads large blocks one after the other and gives every batch with its bytes: for
recovery, compaction and searches within a segment. `find_batch` hops from header to header: for
the short way from an index entry to an offset.
"""

from collections.abc import Iterator
from struct import Struct as Layout

from msgspec import Struct

from penstock.core.errors import CorruptRecordError
from penstock.records import legacy
from penstock.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    first_entry,
    read_header,
    verify,
)
from penstock.storage.disk import File

SCAN_BLOCK = 1024 * 1024
HOP_BLOCK = 4096

_PREFIX = Layout(">qiibIhi")
"""Offset, length, leader epoch, magic, CRC, attributes, last offset delta of a v2 batch."""
_ENTRY_SIZE = 17
"""Bytes that tell the size of a batch of any format."""


class ScannedBatch(Struct, frozen=True, gc=False):
    """A batch found in a file; its bytes are `data[start : start + header.size]`."""

    position: int
    """Where it starts in the file."""
    header: BatchHeader
    data: memoryview
    start: int

    @property
    def bytes(self) -> memoryview:
        return self.data[self.start : self.start + self.header.size]


class BatchLocation(Struct, frozen=True, gc=False):
    """Place of a batch in a file."""

    position: int
    size: int
    last_offset: int


def scan_batches(
    file: File, start: int, end: int, *, check: bool = False, block: int = SCAN_BLOCK
) -> Iterator[ScannedBatch]:
    """The batches from `start` to `end`, in order. `start` must be where a batch starts.

    A batch that runs past `end`, or whose header is none, raises `CorruptRecordError`; with
    `check`, so does a wrong CRC. What was yielded before is whole.
    """
    position = start
    need = HEADER_SIZE
    while position < end:
        data = memoryview(file.read_at(position, min(max(block, need), end - position)))
        if len(data) < min(need, end - position):
            raise CorruptRecordError(f"the file ends at {position + len(data)}, before {end}")
        at = 0
        need = HEADER_SIZE
        while at < len(data):
            left = len(data) - at
            if left < HEADER_SIZE and position + left < end:
                break
            header = header_at(data, at)
            size = header.batch_length + LOG_OVERHEAD
            if size > left:
                if size > end - position:
                    raise CorruptRecordError(
                        f"the batch at position {position} has {size} bytes, "
                        f"{end - position} are left"
                    )
                need = size
                break
            if check:
                verify_at(data, at, header)
            yield ScannedBatch(position, header, data, at)
            position += size
            at += size


def header_at(data: memoryview, at: int) -> BatchHeader:
    """The header of a batch of any format (`legacy.header_of` for magic 0 and 1)."""
    if len(data) - at > MAGIC_AT and data[at + MAGIC_AT] == MAGIC:
        return read_header(data, at)
    return legacy.header_of(data, at)


def verify_at(data: memoryview, at: int, header: BatchHeader) -> None:
    """`CorruptRecordError` unless the CRC of the batch is right, whatever its format."""
    if header.magic == MAGIC:
        verify(data, at, header)
    elif not legacy.crc_ok(data, at):
        raise CorruptRecordError(f"the message at offset {header.base_offset} has a wrong CRC")


def find_batch(file: File, start: int, end: int, offset: int) -> BatchLocation | None:
    """The first batch from `start` on whose last offset is at least `offset`."""
    position = start
    # A large batch is passed by its prefix alone; small ones are many, and read many at once.
    block = _PREFIX.size
    while position < end:
        data = file.read_at(position, min(block, end - position)).ljust(_PREFIX.size, b"\0")
        at = 0
        while at + _PREFIX.size <= len(data) and position < end:
            first, length, _, magic, _, _, delta = _PREFIX.unpack_from(data, at)
            size = length + LOG_OVERHEAD
            if magic != MAGIC or size < HEADER_SIZE:
                size = first_entry(data, at).size
                delta = 0
            if first + delta >= offset:
                return BatchLocation(position, size, first + delta)
            position += size
            at += size
        block = HOP_BLOCK if size < HOP_BLOCK else _PREFIX.size
    return None


def last_whole_batch_end(file: File, start: int, limit: int) -> int:
    """End of the last batch that ends at or before `limit`, walking from `start`."""
    position = start
    while position + _ENTRY_SIZE <= limit:
        data = file.read_at(position, min(HOP_BLOCK, limit - position))
        at = 0
        while at + _ENTRY_SIZE <= len(data):
            size = first_entry(data, at).size
            if position + at + size > limit:
                return position + at
            at += size
        if at == 0:
            return position
        position += at
    return position
