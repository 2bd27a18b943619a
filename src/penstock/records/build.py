"""Builds v2 batches, byte for byte as Kafka's own builder does.

`build_batch` takes records that have their offsets: the log, compaction and the coordinators.
`BatchBuilder` takes what a producer sends, one record at a time.
"""

from collections.abc import Sequence
from struct import error as struct_error

from penstock.core.buffers import Buffer
from penstock.core.errors import InvalidRecordError
from penstock.records import _fill
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
from penstock.records.compress import Compression, check_level, compress
from penstock.records.record import Record

NO_TIMESTAMP = -1
MAX_TIMESTAMP = 2**63 - 1
MAX_BATCH_SIZE = 2**31 - 1
MAX_OFFSET_DELTA = 2**31 - 1

_RATIO_MARGIN = 1.05
"""A batch is taken to compress a little worse than the ones before it did."""


def attributes_of(
    compression: Compression,
    timestamp_type: TimestampType,
    is_transactional: bool,
    is_control: bool,
    has_delete_horizon: bool,
) -> int:
    """The attributes field of a batch's header."""
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
    """Compress the records behind the room for the header, and fill that in.

    Length, magic and CRC of `header` do not matter, they follow from the rest.
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
    """One batch of `records`, whose offsets rise from `base_offset` on.

    `last_offset` keeps a batch its range when compaction has taken its last records, or all of
    them: a batch without records says how far its producer had come. `delete_horizon_ms` takes the
    place of the base timestamp. `max_timestamp` is for batches with log append time, whose time it
    is, and for batches without records; otherwise the latest of the records' timestamps counts.

    `InvalidRecordError`: offsets that do not rise or are too far apart, numbers that do not fit,
    a producer id without epoch or sequence, a transactional batch without a producer id.
    """
    _check_producer(producer_id, producer_epoch, base_sequence, is_transactional, is_control)
    if records:
        base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    else:
        base_timestamp = NO_TIMESTAMP
        delete_horizon_ms = None
        compression = Compression.NONE
    try:
        buffer, last, latest = _fill.encode_records(
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
    """`build_batch` for records that are encoded already, one offset after the other."""
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
    filler: _fill.Filler,
    *,
    compression: Compression,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> None:
    """Put the header of a producer's batch, CRC included, before the records in `buffer`.

    They are those of `filler`, compressed or not; with the header they take `size` bytes. The same
    batch may be given another producer id, epoch and sequence in the same way.

    `InvalidRecordError`: a producer id without epoch or sequence, or transactional without an id.
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
    """The ratio to fill a batch by, when those before it were compressed to `ratio` of their size.

    0 where nothing is compressed, as `Filler` has it.
    """
    return 0.0 if compression is Compression.NONE else ratio * _RATIO_MARGIN


class BatchBuilder:
    """A batch that grows record by record until it is full, as a producer fills it.

    `append` answers whether the record found room; the first one always does. The room is
    `write_limit` bytes of the finished batch: exact where nothing is compressed, otherwise
    estimated from `compression_ratio`, the ratio that earlier batches of the topic reached.
    """

    def __init__(
        self,
        *,
        write_limit: int = 16384,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        compression_ratio: float = 1.0,
    ) -> None:
        check_level(compression, level)
        self.write_limit = write_limit
        self.compression = compression
        self.level = level
        self._filler = _fill.Filler(
            bytearray(max(HEADER_SIZE, min(write_limit, MAX_BATCH_SIZE))),
            write_limit,
            compression_margin(compression, compression_ratio),
        )

    @property
    def records_count(self) -> int:
        return self._filler.count

    @property
    def max_timestamp(self) -> int:
        """The latest of the records' timestamps, -1 where none has one."""
        return self._filler.max_timestamp

    @property
    def uncompressed_size(self) -> int:
        """Bytes of the header and of the records as they are before compression."""
        return self._filler.end

    @property
    def estimated_size(self) -> int:
        """Bytes that the batch would have if it were closed now."""
        return self._filler.estimated_size()

    @property
    def is_full(self) -> bool:
        return self._filler.is_full()

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> bool:
        """Add a record, unless the batch has no room for it: then False, and nothing changes.

        `InvalidRecordError`: a timestamp below -1, or a record larger than 2 GiB.
        """
        if not NO_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            raise InvalidRecordError(f"timestamp {timestamp} is not between -1 and 2**63 - 1")
        return self._filler.append(timestamp, key, value, headers) > 0

    def close(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytearray:
        """The finished batch, from offset 0. It must hold a record, and closes once."""
        filler = self._filler
        if filler.closed:
            raise ValueError("the batch is closed already")
        if filler.count == 0:
            raise ValueError("a batch needs a record before it is closed")
        _check_producer(producer_id, producer_epoch, base_sequence, is_transactional, False)
        filler.closed = True
        buffer = filler.out
        del buffer[filler.end :]
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=attributes_of(
                self.compression, TimestampType.CREATE_TIME, is_transactional, False, False
            ),
            last_offset_delta=filler.count - 1,
            base_timestamp=filler.base_timestamp,
            max_timestamp=filler.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            records_count=filler.count,
        )
        return _finish(buffer, header, self.level)
