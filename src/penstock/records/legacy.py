"""Message sets of magic 0 and 1, which old clients send and old logs contain. Read only.

    offset  size  field
         0     8  offset; a compressed wrapper has that of its last inner message
         8     4  length of the rest
        12     4  CRC-32 of everything from byte 16 on
        16     1  magic
        17     1  attributes: codec (3 bits), timestamp type (magic 1)
        18     8  timestamp (magic 1 only)
     18/26     4  length of the key, -1 for null; the key
               4  length of the value, -1 for null; the value

The value of a wrapper is a compressed message set. Inner offsets start at 0 in a magic 1 wrapper
and are absolute in a magic 0 wrapper.
"""

import zlib
from collections.abc import Iterator
from itertools import groupby
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError
from penstock.core.ids import NO_TIMESTAMP
from penstock.records.batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    TimestampType,
    first_entry,
)
from penstock.records.build import build_batch
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT, Compression, decompress
from penstock.records.record import Record

_MAX_OFFSET_DELTA = 2**31 - 1

_CRC_AT = LOG_OVERHEAD
ATTRIBUTES_AT = 17
_TIMESTAMP_AT = 18
_KEY_AT = (18, 26)

_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")
_HEAD = Struct(">17xbq")
"""Attributes and, in magic 1, timestamp."""


class Message(NamedTuple):
    """One message of a set. The value of a wrapper is a compressed message set."""

    offset: int
    size: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def compression(self) -> Compression:
        """The codec. Raises CorruptRecordError for one that magic 0 and 1 do not have."""
        codec = self.attributes & CODEC_MASK
        if codec > Compression.LZ4:
            raise CorruptRecordError(
                f"message at offset {self.offset} names compression codec {codec}, "
                f"which magic {self.magic} does not have"
            )
        return Compression(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic > 0 and self.attributes & TIMESTAMP_TYPE_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME


def header_of(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the message at `position`, which may be incomplete, as a batch header.

    The header is that of a batch of one record without producer and leader epoch. Its offset is
    that of the message; a compressed wrapper has that of its last inner message.
    """
    offset, size, magic = first_entry(buffer, position)
    attributes = timestamp = 0
    if len(buffer) - position >= _HEAD.size:
        attributes, timestamp = _HEAD.unpack_from(buffer, position)
    if magic == 0:
        timestamp = NO_TIMESTAMP
    return BatchHeader(
        base_offset=offset,
        batch_length=size - LOG_OVERHEAD,
        partition_leader_epoch=-1,
        magic=magic,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
    )


def crc_ok(buffer: Buffer, position: int = 0) -> bool:
    """Returns whether the message at `position` is complete and its CRC is correct."""
    size = first_entry(buffer, position).size
    if size > len(buffer) - position:
        return False
    (stored,) = _UINT32.unpack_from(buffer, position + _CRC_AT)
    return bool(stored == _crc(buffer, position, size))


def read_message(buffer: Buffer, position: int = 0) -> Message:
    """Returns the message at `position`. Raises CorruptRecordError if it is damaged."""
    offset, size, magic = first_entry(buffer, position)
    if magic >= MAGIC:
        raise CorruptRecordError(f"magic is {magic}, not 0 or 1")
    if size > len(buffer) - position:
        raise CorruptRecordError(
            f"message at offset {offset} claims {size} bytes, but {len(buffer) - position} are left"
        )
    (stored,) = _UINT32.unpack_from(buffer, position + _CRC_AT)
    computed = _crc(buffer, position, size)
    if stored != computed:
        raise CorruptRecordError(
            f"message at offset {offset} has CRC {stored:#010x}, "
            f"but its bytes have {computed:#010x}"
        )
    view = memoryview(buffer)[position : position + size]
    try:
        timestamp = _INT64.unpack_from(view, _TIMESTAMP_AT)[0] if magic == 1 else NO_TIMESTAMP
        key, value_at = _sized(view, _KEY_AT[magic])
        value, _ = _sized(view, value_at)
    except struct_error:
        raise CorruptRecordError(f"message at offset {offset} ends within a field") from None
    return Message(offset, size, magic, view[ATTRIBUTES_AT], timestamp, key, value)


def _crc(buffer: Buffer, position: int, size: int) -> int:
    with memoryview(buffer) as view:
        return zlib.crc32(view[position + MAGIC_AT : position + size])


def _sized(view: memoryview, at: int) -> tuple[bytes | None, int]:
    """Returns the bytes whose length is at `at`, and the position after them."""
    (length,) = _INT32.unpack_from(view, at)
    at += 4
    if length < 0:
        return None, at
    if length > len(view) - at:
        raise CorruptRecordError(f"a field claims {length} bytes, but {len(view) - at} are left")
    return bytes(view[at : at + length]), at + length


def read_entry(
    buffer: Buffer,
    position: int = 0,
    *,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
    same_magic: bool = False,
) -> list[Record]:
    """Returns the records of `iter_entry`."""
    return list(iter_entry(buffer, position, max_bytes=max_bytes, same_magic=same_magic))


def iter_entry(
    buffer: Buffer,
    position: int = 0,
    *,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
    same_magic: bool = False,
) -> Iterator[Record]:
    """Yields the message at `position`, or the messages that it wraps, with absolute offsets.

    Wrapped messages keep their timestamps unless the wrapper has log append time. There are logs
    whose wrappers contain messages of the other magic; `same_magic` refuses them.
    """
    message = read_message(buffer, position)
    codec = message.compression
    if codec is Compression.NONE:
        yield Record(message.offset, message.timestamp, message.key, message.value)
        return
    if message.value is None:
        raise CorruptRecordError(f"wrapper at offset {message.offset} has no value")
    unpacked = decompress(codec, message.value, max_bytes, magic=message.magic)
    end, last_offset = _measure(unpacked, message, same_magic)
    base = 0
    if message.magic == 1 and message.offset != 0:
        # Some clients leave the wrapper's offset at 0; the inner offsets then start at 0.
        base = message.offset - last_offset
        if base < 0:
            raise CorruptRecordError(
                f"a wrapper at offset {message.offset} contains a message at {last_offset}"
            )
    append_time = message.timestamp_type is TimestampType.LOG_APPEND_TIME
    position = 0
    while position < end:
        wrapped = read_message(unpacked, position)
        position += wrapped.size
        yield Record(
            base + wrapped.offset,
            message.timestamp if append_time and wrapped.magic == 1 else wrapped.timestamp,
            wrapped.key,
            wrapped.value,
        )


def _measure(unpacked: Buffer, message: Message, same_magic: bool) -> tuple[int, int]:
    """Returns where the last whole message in a wrapper ends, and its offset."""
    position = 0
    last_offset = -1
    # The last message may be incomplete, as at the end of a fetch; clients ignore it too.
    while len(unpacked) - position > ATTRIBUTES_AT:
        entry = first_entry(unpacked, position)
        if entry.size > len(unpacked) - position:
            break
        if same_magic and entry.magic != message.magic:
            raise CorruptRecordError(
                f"a wrapper of magic {message.magic} contains messages of another magic"
            )
        if entry.magic < MAGIC and unpacked[position + ATTRIBUTES_AT] & CODEC_MASK:
            raise CorruptRecordError(
                f"wrapper at offset {message.offset} contains a message that is compressed again"
            )
        last_offset = entry.offset
        position += entry.size
    if not position:
        raise CorruptRecordError(f"wrapper at offset {message.offset} contains no message")
    return position, last_offset


class _Converted(NamedTuple):
    """A record and the properties that its v2 batch must have."""

    record: Record
    compression: Compression
    timestamp_type: TimestampType
    append_time: int

    @property
    def batch(self) -> tuple[Compression, TimestampType, int]:
        return self.compression, self.timestamp_type, self.append_time


def convert_to_v2(
    buffer: Buffer,
    *,
    partition_leader_epoch: int = -1,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> bytearray:
    """Returns the messages of `buffer` as v2 batches with the same offsets and records.

    Neighbours with the same codec and timestamp type share a batch. v2 batches among them are
    copied unchanged.
    """
    converted = bytearray()
    run: list[_Converted] = []
    position = 0
    while position < len(buffer):
        entry = first_entry(buffer, position)
        if entry.magic == MAGIC:
            converted += _build(run, partition_leader_epoch)
            run = []
            if entry.size > len(buffer) - position:
                raise CorruptRecordError(
                    f"batch at offset {entry.offset} claims {entry.size} bytes, "
                    f"but {len(buffer) - position} are left"
                )
            converted += memoryview(buffer)[position : position + entry.size]
        else:
            message = read_message(buffer, position)
            log_append = message.timestamp_type is TimestampType.LOG_APPEND_TIME
            run += (
                _Converted(
                    record,
                    message.compression,
                    message.timestamp_type,
                    message.timestamp if log_append else NO_TIMESTAMP,
                )
                for record in read_entry(buffer, position, max_bytes=max_bytes)
            )
        position += entry.size
    return converted + _build(run, partition_leader_epoch)


def _build(run: list[_Converted], partition_leader_epoch: int) -> bytearray:
    batches = bytearray()
    for (compression, timestamp_type, append_time), group in groupby(
        run, lambda converted: converted.batch
    ):
        records = [converted.record for converted in group]
        while records:
            count = _fitting_count(records)
            batches += build_batch(
                records[:count],
                base_offset=records[0].offset,
                compression=compression,
                timestamp_type=timestamp_type,
                partition_leader_epoch=partition_leader_epoch,
                max_timestamp=append_time,
            )
            records = records[count:]
    return batches


def _fitting_count(records: list[Record]) -> int:
    """Returns how many of the records fit into one batch that starts with the first."""
    last = records[0].offset + _MAX_OFFSET_DELTA
    if records[-1].offset <= last:
        return len(records)
    return sum(record.offset <= last for record in records)
