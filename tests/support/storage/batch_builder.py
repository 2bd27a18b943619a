"""A batch that grows record by record, as the batches of the producer do."""

from collections.abc import Sequence

from penstock.core.errors import InvalidRecordError
from penstock.core.ids import NO_TIMESTAMP
from penstock.records import _encode
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, TimestampType
from penstock.records.build import (
    MAX_BATCH_SIZE,
    MAX_TIMESTAMP,
    _check_producer,
    _finish,
    attributes_of,
    compression_margin,
)
from penstock.records.compress import Compression, check_level


class BatchBuilder:
    """A batch that grows record by record until it is full.

    `append` returns whether there was room for the record; the first record always fits. The
    finished batch has at most `write_limit` bytes: exactly so without compression, otherwise
    estimated from `compression_ratio`, which earlier batches of the topic reached.
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
        self._filler = _encode.Filler(
            bytearray(max(HEADER_SIZE, min(write_limit, MAX_BATCH_SIZE))),
            write_limit,
            compression_margin(compression, compression_ratio),
        )

    @property
    def records_count(self) -> int:
        return self._filler.count

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the records; -1 if none has one."""
        return self._filler.max_timestamp

    @property
    def uncompressed_size(self) -> int:
        """Size of the header and of the uncompressed records."""
        return self._filler.end

    @property
    def estimated_size(self) -> int:
        """Size that the batch would have if it were closed now."""
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
        """Adds a record; returns False, and changes nothing, if there is no room for it.

        Raises InvalidRecordError if the timestamp is below -1 or the record exceeds 2 GiB.
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
        """Returns the finished batch, with base offset 0. It must hold a record; call it once."""
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
