"""Iteration over the batches of a `.log` file, by their headers.

`scan_batches` reads large blocks and yields every batch with its bytes: for recovery, compaction
and timestamp searches. `find_batch` reads headers only: for the short distance from an index entry
to an offset.
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
HEADER_BLOCK = 4096

_PREFIX = Layout(">qiibIhi")
"""A v2 batch: offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_SIZE_PREFIX_BYTES = 17
"""The number of bytes that contain the size of a batch, in any format."""


class ScannedBatch(Struct, frozen=True, gc=False):
    """A batch read from a file; its bytes are `data[start : start + header.size]`."""

    position: int
    """The start of the batch in the file."""
    header: BatchHeader
    data: memoryview
    start: int

    @property
    def bytes(self) -> memoryview:
        return self.data[self.start : self.start + self.header.size]


class BatchLocation(Struct, frozen=True, gc=False):
    """The position of a batch in a file."""

    position: int
    size: int
    last_offset: int


def scan_batches(
    file: File, start: int, end: int, *, check: bool = False, block: int = SCAN_BLOCK
) -> Iterator[ScannedBatch]:
    """Yields the batches from `start`, which must be the start of a batch, to `end`.

    Raises `CorruptRecordError` for a batch that extends past `end` or has an invalid header, and
    with `check` for a wrong CRC. The batches yielded before that are complete.
    """
    position = start
    needed_bytes = HEADER_SIZE
    while position < end:
        data = memoryview(file.read_at(position, min(max(block, needed_bytes), end - position)))
        if len(data) < min(needed_bytes, end - position):
            raise CorruptRecordError(f"the file ends at {position + len(data)}, before {end}")
        at = 0
        needed_bytes = HEADER_SIZE
        while at < len(data):
            remaining = len(data) - at
            if remaining < HEADER_SIZE and position + remaining < end:
                break
            header = header_at(data, at)
            size = header.batch_length + LOG_OVERHEAD
            if size > remaining:
                if size > end - position:
                    raise CorruptRecordError(
                        f"the batch at position {position} has {size} bytes, "
                        f"but the file has {end - position} more"
                    )
                needed_bytes = size
                break
            if check:
                verify_at(data, at, header)
            yield ScannedBatch(position, header, data, at)
            position += size
            at += size


def header_at(data: memoryview, at: int) -> BatchHeader:
    """Returns the header of a batch of any format (`legacy.header_of` for magic 0 and 1)."""
    if len(data) - at > MAGIC_AT and data[at + MAGIC_AT] == MAGIC:
        return read_header(data, at)
    return legacy.header_of(data, at)


def verify_at(data: memoryview, at: int, header: BatchHeader) -> None:
    """Raises `CorruptRecordError` if the CRC of the batch is wrong, in any format."""
    if header.magic == MAGIC:
        verify(data, at, header)
    elif not legacy.crc_ok(data, at):
        raise CorruptRecordError(f"the message at offset {header.base_offset} has a wrong CRC")


def find_batch(file: File, start: int, end: int, offset: int) -> BatchLocation | None:
    """Returns the first batch from `start` on whose last offset is at least `offset`."""
    position = start
    # Of a large batch only the prefix is read; small batches are read many at a time.
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
        block = HEADER_BLOCK if size < HEADER_BLOCK else _PREFIX.size
    return None


def last_whole_batch_end(file: File, start: int, limit: int) -> int:
    """Returns the end of the last batch from `start` on that ends at or before `limit`."""
    position = start
    while position + _SIZE_PREFIX_BYTES <= limit:
        data = file.read_at(position, min(HEADER_BLOCK, limit - position))
        at = 0
        while at + _SIZE_PREFIX_BYTES <= len(data):
            size = first_entry(data, at).size
            if position + at + size > limit:
                return position + at
            at += size
        if at == 0:
            return position
        position += at
    return position
