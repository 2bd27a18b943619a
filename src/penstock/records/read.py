"""Reads the records of batches in any format."""

from collections.abc import Iterator

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError
from penstock.records import _decode, legacy
from penstock.records.batch import (
    HEADER_SIZE,
    MAGIC,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    first_entry,
    read_header,
)
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT, Compression, decompress
from penstock.records.record import Record
from penstock.records.walk import key_of, value_of, walk_records, wrapping

_DECODED_AT_ONCE = 256 * 1024
"""Size of uncompressed records whose objects take less than 16 MiB."""


def record_bytes(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> tuple[Buffer, int, int]:
    """Returns a buffer with the uncompressed records of a v2 batch, and their start and end in it.

    The buffer is `buffer` itself unless the records are compressed. Raises CorruptRecordError if
    the batch is incomplete or cannot be decompressed, DecompressionLimitError if the records
    exceed `max_bytes`.
    """
    start = position + HEADER_SIZE
    end = position + header.size
    if end > len(buffer):
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} claims {header.size} bytes, "
            f"but {len(buffer) - position} are left"
        )
    if header.records_count < 0:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} claims {header.records_count} records"
        )
    codec = header.compression
    if codec is Compression.NONE:
        return buffer, start, end
    unpacked = decompress(codec, memoryview(buffer)[start:end], max_bytes)
    return unpacked, 0, len(unpacked)


def read_records(
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> list[Record]:
    """Returns the records of the batch, or v0/v1 message, at `position`.

    Pass the `header` of a v2 batch if it has been read already. The CRC of a v2 batch is not
    checked: see `batch.verify`. Raises CorruptRecordError unless the records fill the batch
    exactly, DecompressionLimitError if they exceed `max_bytes`.
    """
    if header is None:
        if first_entry(buffer, position).magic < MAGIC:
            return legacy.read_entry(buffer, position, max_bytes=max_bytes)
        header = read_header(buffer, position)
    if header.records_count == 0:
        return []
    source, start, end = record_bytes(buffer, position, header, max_bytes=max_bytes)
    return _decode.decode_records(
        source,
        start,
        end,
        header.records_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp,
        header.attributes & TIMESTAMP_TYPE_FLAG != 0,
    )


def iter_headerless_records(
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> Iterator[Record]:
    """Yields what `read_records` returns; the records of a large batch have no headers.

    They are decoded one at a time: all of them, or the headers of one, may take fifty times as much
    memory as the decompressed batch.
    """
    if header is None:
        if first_entry(buffer, position).magic < MAGIC:
            yield from legacy.iter_entry(buffer, position, max_bytes=max_bytes)
            return
        header = read_header(buffer, position)
    if header.records_count == 0:
        return
    source, start, end = record_bytes(buffer, position, header, max_bytes=max_bytes)
    has_append_time = header.attributes & TIMESTAMP_TYPE_FLAG != 0
    if end - start <= _DECODED_AT_ONCE:
        yield from _decode.decode_records(
            source,
            start,
            end,
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            has_append_time,
        )
        return
    for record in walk_records(source, start, end, header.records_count):
        timestamp = header.max_timestamp
        if not has_append_time:
            timestamp = wrapping(header.base_timestamp + record.timestamp_delta)
        offset = header.base_offset + record.offset_delta
        yield Record(offset, timestamp, key_of(source, record), value_of(source, record))
