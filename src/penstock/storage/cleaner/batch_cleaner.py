"""Compaction of one batch (S5).

A record is removed if a later one has its key, if its transaction was aborted, or if it has no
key. Tombstones and markers are kept for `delete.retention.ms` after the first cleaning that no
longer needs them: that cleaning writes the time when they may be removed into the batch, as its
delete horizon. Records keep their offsets, and a batch keeps its first and last offset, producer,
epoch and sequence, so that the producer's next batch is still in sequence.

A batch that keeps all records is copied byte for byte. Of other batches the remaining records are
copied: only the header is rewritten, and the timestamps if the delete horizon becomes their base.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.ids import NO_OFFSET
from penstock.records.batch import (
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    TimestampType,
    compute_crc,
    read_header,
    write_crc,
)
from penstock.records.build import build_batch
from penstock.records.compress import compress
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records, record_bytes
from penstock.storage.cleaner.cleaned_transactions import CleanedTransactions
from penstock.storage.cleaner.offset_map import OffsetMap, shift_timestamps
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.segment.batch_scan import ScannedBatch

logger = logging.getLogger(__name__)


class LastRecord(NamedTuple):
    """The last offset and the epoch of an active producer."""

    last_data_offset: int
    """-1 if its epoch has only a marker."""
    producer_epoch: int


class CleanedBatch(NamedTuple):
    """A batch after compaction."""

    data: Buffer
    header: BatchHeader
    is_unchanged: bool
    aborted: AbortedTxn | None = None
    """The entry for the transaction index."""


class CleanerStats:
    """The numbers of records and bytes that a cleaning has read and written."""

    def __init__(self) -> None:
        self.map_bytes_read = 0
        self.map_messages_read = 0
        self.bytes_read = 0
        self.messages_read = 0
        self.bytes_written = 0
        self.messages_written = 0
        self.invalid_messages = 0
        """Records without a key, which are removed from a compacted log."""


class BatchCleaner:
    """Compacts the batches of a log, in log order.

    `end_offset` is the end of the cleaning: the batch before it is kept, empty if necessary, so
    that the log keeps its end offset. `producers` are the active ones: the last batch of each is
    kept for its sequence and epoch.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastRecord],
        stats: CleanerStats,
        *,
        now_ms: int,
        delete_retention_ms: int,
        max_message_bytes: int,
        end_offset: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._stats = stats
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._max_message_bytes = max_message_bytes
        self._end_offset = end_offset
        self._selected = bytearray()
        self._shifted = bytearray()

    def clean(self, batch: ScannedBatch, *, keep_legacy_tombstones: bool) -> CleanedBatch | None:
        """Returns the compacted batch; None if nothing remains.

        Batches of old formats have no delete horizon: the caller decides about tombstones.
        """
        header = batch.header
        self._stats.bytes_read += header.size
        self._stats.messages_read += header.records_count
        if header.magic < MAGIC:
            cleaned = self._clean_legacy(batch, keep_legacy_tombstones)
        elif header.is_control:
            cleaned = self._clean_control(batch)
        elif self._transactions.on_batch(header):
            cleaned = self._empty_batch(batch)
        else:
            cleaned = self._clean_records(batch)
        if cleaned is not None:
            self._stats.bytes_written += len(cleaned.data)
            self._stats.messages_written += cleaned.header.records_count
            self._warn_if_grown(header, cleaned.header)
        return cleaned

    def _clean_control(self, batch: ScannedBatch) -> CleanedBatch | None:
        header = batch.header
        marker = read_end_txn_marker(batch.data, batch.start, header)
        decision = self._transactions.on_control_batch(header, marker.control_type)
        horizon_ms = header.delete_horizon_ms
        if not decision.can_discard:
            return CleanedBatch(batch.bytes, header, True, decision.aborted)
        if horizon_ms is None and header.records_count:
            data, start, end = record_bytes(batch.data, batch.start, header)
            return self._rebuild_batch(
                header, data, start, end, header.records_count, header.max_timestamp, True
            )
        if horizon_ms is None or horizon_ms <= self._now_ms:
            return self._empty_batch(batch)
        return CleanedBatch(batch.bytes, header, True)

    def _clean_records(self, batch: ScannedBatch) -> CleanedBatch | None:
        header = batch.header
        count = header.records_count
        if not count:
            return self._empty_batch(batch)
        if header.base_offset > self._offsets.latest_offset:
            return CleanedBatch(batch.bytes, header, True)
        horizon_ms = header.delete_horizon_ms
        data, start, end = record_bytes(batch.data, batch.start, header)
        selection = self._offsets.select_records(
            data,
            start,
            end,
            count,
            header.base_offset,
            header.base_timestamp,
            horizon_ms is not None and horizon_ms <= self._now_ms,
            self._selected,
        )
        self._stats.invalid_messages += selection.unkeyed
        if not selection.kept:
            return self._empty_batch(batch)
        # Before its horizon is set, a tombstone must have removed all earlier records of its key.
        sets_horizon = (
            selection.tombstones > 0
            and horizon_ms is None
            and header.last_offset <= self._offsets.latest_offset
        )
        if selection.kept == count and not sets_horizon:
            return CleanedBatch(batch.bytes, header, True)
        if selection.kept < count:
            data, start, end = self._selected, 0, selection.size
        max_timestamp = selection.max_timestamp
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            max_timestamp = header.max_timestamp
        return self._rebuild_batch(
            header, data, start, end, selection.kept, max_timestamp, sets_horizon
        )

    def _rebuild_batch(
        self,
        header: BatchHeader,
        data: Buffer,
        start: int,
        end: int,
        count: int,
        max_timestamp: int,
        sets_horizon: bool,
    ) -> CleanedBatch:
        """Returns the batch with the `count` records in `data[start:end]`."""
        attributes = header.attributes
        base_timestamp = header.base_timestamp
        if sets_horizon:
            shift = base_timestamp - self._horizon_ms
            end = shift_timestamps(data, start, end, count, shift, self._shifted)
            data, start = self._shifted, 0
            attributes |= DELETE_HORIZON_FLAG
            base_timestamp = self._horizon_ms
        records: Buffer
        with memoryview(data) as view, view[start:end] as part:
            records = compress(header.compression, part)
        buffer = bytearray(HEADER_SIZE) + records
        new_header = header._replace(
            batch_length=len(buffer) - LOG_OVERHEAD,
            crc=0,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            records_count=count,
        )
        HEADER.pack_into(buffer, 0, *new_header)
        crc = compute_crc(buffer, 0, len(buffer))
        write_crc(buffer, 0, crc)
        return CleanedBatch(buffer, new_header._replace(crc=crc), False)

    def _empty_batch(self, batch: ScannedBatch) -> CleanedBatch | None:
        """Returns the batch without records if it must be kept, else None."""
        header = batch.header
        if not self._must_keep(header):
            return None
        if header.size == HEADER_SIZE:
            return CleanedBatch(batch.bytes, header, True)
        buffer = build_batch(
            [],
            base_offset=header.base_offset,
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            partition_leader_epoch=header.partition_leader_epoch,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
        return CleanedBatch(buffer, read_header(buffer), False)

    def _must_keep(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        last = self._producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset != NO_OFFSET:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _clean_legacy(self, batch: ScannedBatch, keep_tombstones: bool) -> CleanedBatch | None:
        """Keeps a v0 or v1 message unchanged; a wrapper that loses messages becomes a v2 batch."""
        header = batch.header
        records = read_records(batch.data, batch.start)
        latest = self._offsets.latest_offset
        remaining = []
        for record in records:
            if record.offset > latest:
                remaining.append(record)
            elif record.key is None:
                self._stats.invalid_messages += 1
            elif record.offset >= self._offsets.get(record.key) and (
                record.value is not None or keep_tombstones
            ):
                remaining.append(record)
        if len(remaining) == len(records):
            return CleanedBatch(batch.bytes, header, True)
        if not remaining:
            return self._empty_batch(batch)
        buffer = build_batch(
            remaining,
            base_offset=remaining[0].offset,
            compression=header.compression,
            timestamp_type=header.timestamp_type,
            partition_leader_epoch=header.partition_leader_epoch,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
        return CleanedBatch(buffer, read_header(buffer), False)

    def _warn_if_grown(self, before: BatchHeader, after: BatchHeader) -> None:
        if after.size > before.size and after.size > self._max_message_bytes:
            logger.warning(
                "the batch at offset %d has %d bytes after compaction, more than max.message.bytes "
                "%d; old consumers may need a larger fetch size",
                after.base_offset,
                after.size,
                self._max_message_bytes,
            )


def map_batch(
    offsets: OffsetMap, batch: ScannedBatch, start_offset: int, transactions: CleanedTransactions
) -> bool:
    """Adds the keys of a batch from `start_offset` on to the map; False if it is full."""
    header = batch.header
    if header.magic < MAGIC:
        for record in read_records(batch.data, batch.start):
            if record.key is None or record.offset < start_offset:
                continue
            if not offsets.put(record.key, record.offset):
                return False
    elif header.is_control:
        marker = read_end_txn_marker(batch.data, batch.start, header)
        transactions.on_control_batch(header, marker.control_type)
    elif not transactions.on_batch(header) and header.records_count:
        data, start, end = record_bytes(batch.data, batch.start, header)
        read = offsets.put_records(
            data, start, end, header.records_count, header.base_offset, start_offset
        )
        if read < header.records_count:
            return False
    if header.last_offset >= start_offset:
        offsets.advance(header.last_offset)
    return True
