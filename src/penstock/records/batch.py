"""The header of a record batch: read from, and changed in, the bytes of the batch.

A v2 batch (magic 2), the only format that is written:

    offset  size  field
         0     8  base offset           \\ not covered by the CRC, so that a broker can
         8     4  batch length (from 12) | assign offsets and its leader epoch without
        12     4  partition leader epoch | reading the records
        16     1  magic                 /
        17     4  CRC-32C of everything from byte 21 to the end of the batch
        21     2  attributes: codec (3 bits), timestamp type, transactional, control,
                  delete horizon
        23     4  last offset delta
        27     8  base timestamp, or the delete horizon
        35     8  max timestamp
        43     8  producer id
        51     2  producer epoch
        53     4  base sequence
        57     4  record count
        61        the records, compressed as one block if the attributes name a codec

Numbers are big-endian. Nothing in this module reads the records.
"""

from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from crc32c import crc32c

from penstock.core.buffers import Buffer, WritableBuffer
from penstock.core.errors import CorruptRecordError
from penstock.records.compress import Compression

MAGIC = 2
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Size of the offset and length fields that every format starts with."""

MAGIC_AT = 16
"""Position of the magic byte in every format."""

MIN_ENTRY_SIZE = 17
"""Size of the fields that give an entry's offset, length and magic."""

CRC_START = 21
"""Position of the first byte that the CRC covers."""

FLAGS_AT = 22
"""Position of the low byte of the attributes, which has the codec and all flags."""

MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD
MIN_LEGACY_LENGTH = 14

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

HEADER = Struct(">qiibIhiqqqhii")
_ENTRY = Struct(">qiib")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")

_CODECS = tuple(Compression)

_EPOCH_AT = 12
_CRC_AT = 17
_MAX_TIMESTAMP_AT = 35


class TimestampType(IntEnum):
    """Whether a batch's timestamps were set by the producer or by the broker."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records of a v2 batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping at 2**31; -1 if the batch has no sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> Compression:
        """The codec. Raises CorruptRecordError if the attributes name an unknown one."""
        codec = self.attributes & CODEC_MASK
        if codec >= len(_CODECS):
            raise CorruptRecordError(
                f"batch at offset {self.base_offset} names the unknown compression codec {codec}"
            )
        return _CODECS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & TIMESTAMP_TYPE_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones or marker; None if it is not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


class Entry(NamedTuple):
    """The fields that a batch (v2) and a message (v0, v1) have in common."""

    offset: int
    """Base offset of a v2 batch; offset of a v0/v1 message, or of the last one that it wraps."""

    size: int
    """Size of the whole entry, including the offset and length fields."""

    magic: int


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header at `position`. The buffer may end before the records do.

    Raises CorruptRecordError if there are fewer than 61 bytes, the magic is not 2, or the length
    is below 49.
    """
    try:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct_error:
        raise CorruptRecordError(
            f"a batch header needs {HEADER_SIZE} bytes, but {len(buffer) - position} are left"
        ) from None
    if header.magic != MAGIC:
        raise CorruptRecordError(f"magic is {header.magic}, not {MAGIC}")
    if header.batch_length < MIN_BATCH_LENGTH:
        raise CorruptRecordError(
            f"batch length is {header.batch_length}, less than the {MIN_BATCH_LENGTH} of a header"
        )
    return header


def first_entry(buffer: Buffer, position: int = 0) -> Entry:
    """Returns offset, size and magic of the entry at `position`, in any format.

    Raises CorruptRecordError if there are fewer than 17 bytes or the fields are impossible.
    """
    try:
        offset, length, _, magic = _ENTRY.unpack_from(buffer, position)
    except struct_error:
        raise CorruptRecordError(
            f"an entry needs {_ENTRY.size} bytes, but {len(buffer) - position} are left"
        ) from None
    if not 0 <= magic <= MAGIC:
        raise CorruptRecordError(f"magic is {magic}, not 0, 1 or 2")
    minimum = MIN_BATCH_LENGTH if magic == MAGIC else MIN_LEGACY_LENGTH
    if length < minimum:
        raise CorruptRecordError(f"length is {length}, less than the {minimum} of magic {magic}")
    return Entry(offset, length + LOG_OVERHEAD, magic)


def split(buffer: Buffer, *, allow_partial: bool = False) -> list[tuple[int, BatchHeader]]:
    """Returns the position and header of every batch in `buffer`.

    Raises CorruptRecordError unless whole batches fill the buffer exactly. A fetch response may
    end with a partial batch; `allow_partial` leaves it out instead.
    """
    end = len(buffer)
    position = 0
    batches: list[tuple[int, BatchHeader]] = []
    while position < end:
        if allow_partial and end - position < HEADER_SIZE:
            break
        header = read_header(buffer, position)
        size = header.batch_length + LOG_OVERHEAD
        if size > end - position:
            if allow_partial:
                break
            raise CorruptRecordError(
                f"batch at offset {header.base_offset} claims {size} bytes, "
                f"but {end - position} are left"
            )
        batches.append((position, header))
        position += size
    return batches


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """Returns the CRC-32C of the batch of `size` bytes at `position`."""
    return crc32c(memoryview(buffer)[position + CRC_START : position + size])


def write_crc(buffer: WritableBuffer, position: int, crc: int) -> None:
    """Sets the CRC field of the batch at `position`."""
    _CRC.pack_into(buffer, position + _CRC_AT, crc)


def verify(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises CorruptRecordError unless the batch is complete and its CRC is correct."""
    if header.size > len(buffer) - position:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} claims {header.size} bytes, "
            f"but {len(buffer) - position} are left"
        )
    computed = compute_crc(buffer, position, header.size)
    if computed != header.crc:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has CRC {header.crc:#010x}, "
            f"but its bytes have {computed:#010x}"
        )


def set_base_offset_and_epoch(
    buffer: WritableBuffer, position: int, base_offset: int, epoch: int
) -> None:
    """Sets both fields that a leader assigns; the CRC covers neither."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_AT, epoch)


def set_max_timestamp(
    buffer: WritableBuffer,
    position: int,
    header: BatchHeader,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> BatchHeader:
    """Sets timestamp type, max timestamp and CRC of the batch; returns the new header."""
    attributes = header.attributes & (
        CODEC_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
    )
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_FLAG
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, attributes)
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    crc = compute_crc(buffer, position, header.size)
    write_crc(buffer, position, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)
