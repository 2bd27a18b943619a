"""Builds v2 batches, byte for byte as Kafka's own builder does.

`build_batch` takes records that have offsets; the log, the cleaner and the coordinators use it. The
producer fills its batches record by record and completes them with `write_producer_batch`.
"""

from collections.abc import Sequence
from struct import error as struct_error

from penstock.core.buffers import Buffer
from penstock.core.errors import InvalidRecordError
from penstock.core.ids import NO_TIMESTAMP
from penstock.records import _encode
from penstock.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    compute_crc,
    write_crc,
)
from penstock.records.compress import Compression, compress
from penstock.records.record import Record

MAX_TIMESTAMP = 2**63 - 1
MAX_BATCH_SIZE = 2**31 - 1
MAX_OFFSET_DELTA = 2**31 - 1

_RATIO_MARGIN = 1.05
"""Batches are assumed to compress a little worse than the previous ones did."""


def attributes_of(
    compression: Compression,
    timestamp_type: TimestampType,
    is_transactional: bool,
    is_control: bool,
    has_delete_horizon: bool,
) -> int:
    """Returns the attributes field of a batch header."""
    return (
        compression
        | (TIMESTAMP_TYPE_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if has_delete_horizon else 0)
    )


def _check_producer(
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
    is_control: bool,
) -> None:
    if producer_id < 0:
        if is_transactional:
            raise InvalidRecordError("a transactional batch needs a producer id")
        return
    if producer_epoch < 0:
        raise InvalidRecordError(f"producer {producer_id} needs an epoch")
    if base_sequence < 0 and not is_control:
        raise InvalidRecordError(f"producer {producer_id} needs a sequence number")


def _finish(buffer: bytearray, header: BatchHeader, level: int | None) -> bytearray:
    """Compresses the records in `buffer` and writes the header in front of them.

    Length, magic and CRC are computed; those of `header` are ignored.
    """
    codec = header.compression
    if codec is not Compression.NONE:
        with memoryview(buffer) as view:
            packed = compress(codec, view[HEADER_SIZE:], level)
        buffer[HEADER_SIZE:] = packed
    length = len(buffer) - LOG_OVERHEAD
    try:
        HEADER.pack_into(buffer, 0, *header._replace(batch_length=length, magic=MAGIC, crc=0))
    except struct_error as error:
        raise InvalidRecordError(f"a batch cannot have the header {header}: {error}") from None
    write_crc(buffer, 0, compute_crc(buffer, 0, len(buffer)))
    return buffer


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Returns one batch of `records`, whose offsets increase from `base_offset`.

    `last_offset` preserves the offset range of a batch from which compaction has removed the last
    records, or all of them: an empty batch still shows how far its producer has come.
    `delete_horizon_ms` replaces the base timestamp. `max_timestamp` is the log append time, or the
    timestamp of a batch without records; otherwise it is the largest timestamp of the records.

    Raises InvalidRecordError if offsets do not increase or are too far apart, if a number does not
    fit, if a producer id has no epoch or sequence, or if a transactional batch has no producer id.
    """
    _check_producer(producer_id, producer_epoch, base_sequence, is_transactional, is_control)
    if records:
        base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    else:
        base_timestamp = NO_TIMESTAMP
        delete_horizon_ms = None
        compression = Compression.NONE
    try:
        buffer, last, latest = _encode.encode_records(
            records, HEADER_SIZE, base_offset, base_timestamp
        )
    except OverflowError as error:
        raise InvalidRecordError(f"a record cannot be encoded: {error}") from None
    if last_offset is None:
        last_offset = last
    if not max(last, base_offset) <= last_offset <= base_offset + MAX_OFFSET_DELTA:
        raise InvalidRecordError(
            f"last offset {last_offset} in a batch whose records go from {base_offset} to {last}"
        )
    if max_timestamp is None or (records and timestamp_type is TimestampType.CREATE_TIME):
        max_timestamp = latest
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes_of(
            compression,
            timestamp_type,
            is_transactional,
            is_control,
            delete_horizon_ms is not None,
        ),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return _finish(buffer, header, level)


def build_encoded(
    records: Buffer,
    *,
    records_count: int,
    base_offset: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression,
    level: int | None,
    timestamp_type: TimestampType,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    partition_leader_epoch: int,
    is_transactional: bool,
    is_control: bool,
) -> bytearray:
    """Returns a batch of records that are already encoded and have consecutive offsets."""
    _check_producer(producer_id, producer_epoch, base_sequence, is_transactional, is_control)
    buffer = bytearray(HEADER_SIZE)
    buffer += records
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes_of(
            compression, timestamp_type, is_transactional, is_control, has_delete_horizon=False
        ),
        last_offset_delta=records_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=records_count,
    )
    return _finish(buffer, header, level)


def write_producer_batch(
    buffer: bytearray,
    size: int,
    filler: _encode.Filler,
    *,
    compression: Compression,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> None:
    """Writes the header of a producer's batch, including its CRC, at the start of `buffer`.

    The records behind it are those of `filler`, compressed or not; header and records take `size`
    bytes. A later call can give the same batch another producer id, epoch and sequence.

    Raises InvalidRecordError if a producer id has no epoch or sequence, or if a transactional
    batch has no producer id.
    """
    _check_producer(producer_id, producer_epoch, base_sequence, is_transactional, False)
    attributes = attributes_of(
        compression, TimestampType.CREATE_TIME, is_transactional, False, False
    )
    HEADER.pack_into(
        buffer,
        0,
        0,
        size - LOG_OVERHEAD,
        -1,
        MAGIC,
        0,
        attributes,
        filler.count - 1,
        filler.base_timestamp,
        filler.max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        filler.count,
    )
    write_crc(buffer, 0, compute_crc(buffer, 0, size))


def compression_margin(compression: Compression, ratio: float) -> float:
    """Returns the compression ratio to assume for a batch after earlier ones reached `ratio`.

    Returns 0, as `Filler` expects, if batches are not compressed.
    """
    return 0.0 if compression is Compression.NONE else ratio * _RATIO_MARGIN
