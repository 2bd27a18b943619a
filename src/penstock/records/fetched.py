"""Batches that a follower has fetched from its leader: verified before they are appended."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError, InvalidRecordError
from penstock.records import legacy
from penstock.records._fetched import scan_plain_batches
from penstock.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MIN_BATCH_LENGTH,
    BatchHeader,
    first_entry,
    verify,
)


class PlainBatches(NamedTuple):
    """Whole batches without producer ids, in one buffer; one number for each batch."""

    base_offsets: "array[int]"
    last_offsets: "array[int]"
    positions: "array[int]"
    max_timestamps: "array[int]"
    """The latest timestamp up to the end of the batch."""
    max_timestamp_offsets: "array[int]"
    """The last offset of the batch that has this timestamp."""
    size: int
    """Bytes of all batches."""


def verify_plain(buffer: Buffer, leader_epoch: int) -> PlainBatches | None:
    """Returns the batches if all are of this leader epoch and have no producer id.

    Returns None otherwise, also if a batch is damaged: `verify_fetched` handles all of them.
    """
    result = scan_plain_batches(buffer, leader_epoch)
    if result is None:
        return None
    numbers, size = result
    count = len(numbers) // 5
    return PlainBatches(
        numbers[:count],
        numbers[count : 2 * count],
        numbers[2 * count : 3 * count],
        numbers[3 * count : 4 * count],
        numbers[4 * count :],
        size,
    )


def verify_fetched(buffer: Buffer, leader_epoch: int) -> tuple[list[BatchHeader], int]:
    """Returns the headers of the batches to append, and their size in the buffer.

    A leader may cut the last batch of a response: an incomplete one at the end is left out. So are
    batches with a later epoch than the leader's, and all after them: they were damaged on their way
    (the CRC does not cover the epoch), or belong to another leader.

    Raises CorruptRecordError for a wrong length or CRC, InvalidRecordError unless the offsets
    increase.
    """
    headers: list[BatchHeader] = []
    view = memoryview(buffer)
    end = len(view)
    position = 0
    last_offset = -1
    while end - position > MAGIC_AT:
        if view[position + MAGIC_AT] != MAGIC:
            if first_entry(view, position).size > end - position:
                break
            legacy.read_message(view, position)
            header = legacy.header_of(view, position)
        else:
            if end - position < HEADER_SIZE:
                break
            header = tuple.__new__(BatchHeader, HEADER.unpack_from(view, position))
            if header.batch_length < MIN_BATCH_LENGTH:
                raise CorruptRecordError(
                    f"batch length is {header.batch_length}, less than the "
                    f"{MIN_BATCH_LENGTH} of a header"
                )
        next_position = position + header.batch_length + LOG_OVERHEAD
        if next_position > end:
            break
        if header.magic == MAGIC and header.crc != crc32c(
            view[position + CRC_START : next_position]
        ):
            verify(view, position, header)
        if header.partition_leader_epoch > leader_epoch:
            break
        if header.base_offset + header.last_offset_delta <= last_offset:
            raise InvalidRecordError(
                f"last offset {header.last_offset} follows {last_offset}: offsets must increase"
            )
        last_offset = header.base_offset + header.last_offset_delta
        headers.append(header)
        position = next_position
    return headers, position


def divide_batches(
    data: Buffer, headers: list[BatchHeader], max_bytes: int
) -> Iterator[tuple[memoryview, list[BatchHeader]]]:
    """Yields parts of `data` of at most `max_bytes` each; a larger batch is a part of its own."""
    view = memoryview(data)
    start = position = first = 0
    for index, header in enumerate(headers):
        if position > start and position + header.size - start > max_bytes:
            yield view[start:position], headers[first:index]
            start, first = position, index
        position += header.size
    yield view[start:position], headers[first:]
