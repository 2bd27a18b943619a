"""Down-conversion: batches become message sets of magic 0 or 1, for old consumers.

`legacy.py` describes the formats. They have no headers, producers or markers, and magic 0 has no
timestamps. Offsets do not change.
"""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError, ErrorCode, KafkaError
from penstock.core.ids import NO_TIMESTAMP
from penstock.records import legacy
from penstock.records.batch import (
    MAGIC,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    TimestampType,
    first_entry,
    read_header,
    verify,
)
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT, Compression, compress
from penstock.records.errors import DecompressionLimitError
from penstock.records.read import iter_headerless_records
from penstock.records.record import Record

_PREFIX = Struct(">qiI")
"""Offset, length and CRC."""
_HEADS = (Struct(">bb"), Struct(">bbq"))
"""Magic, attributes and, in magic 1, timestamp: what the CRC covers from its first byte on."""
_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)
_CRC_SIZE = 4
_MAX_MESSAGES = 2**31 - 1
_MARGIN = 1024 * 1024
"""A message has more bytes than a record; for batches near the limit that does not matter."""

_LZ4_CHECKSUM_AT = 6
_LZ4_CHECKSUM_OF_MAGIC_0 = b"\x1a"
"""Clients of magic 0 include the frame's magic number in its header checksum."""


class MessageSet(NamedTuple):
    messages: bytearray
    next_offset: int
    """The offset after the last batch that was read, even if it produced no message."""


def down_convert(
    buffer: Buffer,
    magic: int,
    first_offset: int = 0,
    *,
    room: int = 2**31 - 1,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> MessageSet:
    """Converts all batches and messages in `buffer` with `convert_entry`.

    The set ends after `room` bytes, possibly within a message, as readers of fetched sets expect;
    the first batch that produces a message is always complete. A batch that cannot be converted
    ends the set; its error is raised if it is the first.
    """
    messages = bytearray()
    next_offset = first_offset
    position = 0
    while position < len(buffer) and (not messages or len(messages) < room):
        entry = first_entry(buffer, position)
        try:
            converted = convert_entry(buffer, position, magic, first_offset, max_bytes=max_bytes)
        except KafkaError:
            if not messages:
                raise
            break
        is_batch = entry.magic >= MAGIC
        next_offset = read_header(buffer, position).next_offset if is_batch else entry.offset + 1
        if not messages:
            room = max(room, len(converted))
        messages += converted
        position += entry.size
    del messages[room:]
    return MessageSet(messages, next_offset)


def convert_entry(
    buffer: Buffer,
    position: int,
    magic: int,
    first_offset: int = 0,
    *,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> Buffer:
    """Returns the batch or message at `position` as messages of `magic`, 0 or 1.

    Returns nothing for markers and empty batches, which the old formats cannot express. Compressed
    records become one wrapper message. Uncompressed records become one message each, without those
    below `first_offset`: clients rely on a set of single messages starting at the offset that they
    fetch. Messages that are old enough are returned unchanged.

    Raises KafkaError UNSUPPORTED_COMPRESSION_TYPE for zstd, which the old formats do not have, and
    the errors of `read_records`.
    """
    entry = first_entry(buffer, position)
    if entry.magic <= magic:
        return memoryview(buffer)[position : position + entry.size]
    is_batch = entry.magic >= MAGIC
    header = read_header(buffer, position) if is_batch else legacy.header_of(buffer, position)
    if is_batch:
        # The messages get new checksums, which would hide damage of the stored batch.
        verify(buffer, position, header)
        if header.is_control:
            return b""
    codec = header.compression
    if codec is Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch at offset {header.base_offset} is compressed with zstd, which this client "
            "cannot read",
            remedy="use a client that sends Fetch version 10 (Kafka 2.1) or newer",
        )
    records = iter_headerless_records(
        buffer, position, header if is_batch else None, max_bytes=max_bytes
    )
    attributes = 0
    if magic > 0 and header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes = TIMESTAMP_TYPE_FLAG
    try:
        if codec is Compression.NONE:
            fetched = (record for record in records if record.offset >= first_offset)
            return _messages(fetched, magic, attributes, max_bytes)
        return _wrapper(records, magic, attributes, header, max_bytes)
    except struct_error as error:
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset} has values that magic {magic} "
            f"cannot express: {error}"
        ) from None


def _wrapper(
    records: Iterator[Record], magic: int, attributes: int, header: BatchHeader, max_bytes: int
) -> bytearray:
    """Returns one message that wraps all records and has the offset of the last one."""
    first = last = next(records, None)
    if first is None:
        return bytearray()
    latest: int = NO_TIMESTAMP

    def observed() -> Iterator[Record]:
        nonlocal last, latest
        for last in chain([first], records):
            latest = max(latest, last.timestamp)
            yield last

    # Inner offsets are relative to the first record in magic 1, absolute in magic 0.
    base = first.offset if magic > 0 else 0
    codec = header.compression
    packed = compress(codec, _messages(observed(), magic, attributes, max_bytes, base))
    if codec is Compression.LZ4 and magic == 0:
        at = _LZ4_CHECKSUM_AT
        packed = packed[:at] + _LZ4_CHECKSUM_OF_MAGIC_0 + packed[at + 1 :]
    assert last is not None
    wrapper = Record(last.offset, latest, None, packed)
    return _messages([wrapper], magic, attributes | codec, _MAX_MESSAGES)


def _messages(
    records: Iterable[Record], magic: int, attributes: int, max_bytes: int, base_offset: int = 0
) -> bytearray:
    """Returns one message per record, with offsets relative to `base_offset`.

    Raises DecompressionLimitError if they take more than `max_bytes` and some.
    """
    messages = bytearray()
    head = _HEADS[magic]
    without_times = head.pack(magic, attributes) if magic == 0 else b""
    for offset, timestamp, key, value, _ in records:
        start = without_times or head.pack(magic, attributes, timestamp)
        sized_key = _NULL if key is None else _LENGTH.pack(len(key)) + key
        body = b"".join(
            (start, sized_key, _NULL)
            if value is None
            else (start, sized_key, _LENGTH.pack(len(value)), value)
        )
        messages += _PREFIX.pack(offset - base_offset, _CRC_SIZE + len(body), zlib.crc32(body))
        messages += body
        if len(messages) > max_bytes + _MARGIN:
            raise DecompressionLimitError(max_bytes)
    return messages
