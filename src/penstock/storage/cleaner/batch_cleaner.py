"""What a cleaning leaves of one batch (S5).

Records go when a later one has their key, when their transaction was aborted, and when they have
no key. Tombstones and markers stay for `delete.retention.ms` after the first cleaning that could
do without them: that cleaning writes the time when they may go into the batch, as its delete
horizon. What stays keeps its offset, and a batch keeps its first and last offset, its producer,
epoch and sequence, so that the producer's next batch still follows on.

A batch of which all stays is taken over byte for byte, and of the others the records are: only
the header is written anew, and the timestamps where the delete horizon becomes their base.
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

_log = logging.getLogger(__name__)


class LastRecord(NamedTuple):
    """The last that an active producer wrote."""

    last_data_offset: int
    """-1 where all there is of its epoch is a marker."""
    producer_epoch: int


class CleanedBatch(NamedTuple):
    """What stays of a batch."""

    data: Buffer
    header: BatchHeader
    unchanged: bool
    aborted: AbortedTxn | None = None
    """To go into the transaction index."""


class CleanerStats:
    """What a cleaning has read, kept and written."""

    def __init__(self) -> None:
        self.map_bytes_read = 0
        self.map_messages_read = 0
        self.bytes_read = 0
        self.messages_read = 0
        self.bytes_written = 0
        self.messages_written = 0
        self.invalid_messages = 0
        """Records without a key, which a compacted log cannot keep."""


class BatchCleaner:
    """Applies the rules to the batches of a log, in their order.

    `end_offset` is where the cleaning ends: the batch before it stays, as an empty one if need
    be, so that the log does not forget how far it went. `producers` are the active ones: the last
    batch of each stays for its sequence and epoch.
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

    def clean(self, found: ScannedBatch, *, keep_legacy_tombstones: bool) -> CleanedBatch | None:
        """What stays of a batch; None where nothing does.

        Batches of old formats have no delete horizon: whoever calls decides for them.
        """
        header = found.header
        self._stats.bytes_read += header.size
        self._stats.messages_read += header.records_count
        if header.magic < MAGIC:
            cleaned = self._clean_legacy(found, keep_legacy_tombstones)
        elif header.is_control:
            cleaned = self._clean_control(found)
        elif self._transactions.on_batch(header):
            cleaned = self._emptied(found)
        else:
            cleaned = self._clean_records(found)
        if cleaned is not None:
            self._stats.bytes_written += len(cleaned.data)
            self._stats.messages_written += cleaned.header.records_count
            self._warn_if_grown(header, cleaned.header)
        return cleaned

    def _clean_control(self, found: ScannedBatch) -> CleanedBatch | None:
        header = found.header
        marker = read_end_txn_marker(found.data, found.start, header)
        fate = self._transactions.on_control_batch(header, marker.control_type)
        horizon_ms = header.delete_horizon_ms
        if not fate.can_go:
            return CleanedBatch(found.bytes, header, True, fate.aborted)
        if horizon_ms is None and header.records_count:
            data, start, end = record_bytes(found.data, found.start, header)
            return self._rebuilt(
                header, data, start, end, header.records_count, header.max_timestamp, True
            )
        if horizon_ms is None or horizon_ms <= self._now_ms:
            return self._emptied(found)
        return CleanedBatch(found.bytes, header, True)

    def _clean_records(self, found: ScannedBatch) -> CleanedBatch | None:
        header = found.header
        count = header.records_count
        if not count:
            return self._emptied(found)
        if header.base_offset > self._offsets.latest_offset:
            return CleanedBatch(found.bytes, header, True)
        horizon_ms = header.delete_horizon_ms
        data, start, end = record_bytes(found.data, found.start, header)
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
            return self._emptied(found)
        # Before its horizon is set, a tombstone must have done its work on all earlier records.
        sets_horizon = (
            selection.tombstones > 0
            and horizon_ms is None
            and header.last_offset <= self._offsets.latest_offset
        )
        if selection.kept == count and not sets_horizon:
            return CleanedBatch(found.bytes, header, True)
        if selection.kept < count:
            data, start, end = self._selected, 0, selection.size
        max_timestamp = selection.max_timestamp
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            max_timestamp = header.max_timestamp
        return self._rebuilt(header, data, start, end, selection.kept, max_timestamp, sets_horizon)

    def _rebuilt(
        self,
        header: BatchHeader,
        data: Buffer,
        start: int,
        end: int,
        count: int,
        max_timestamp: int,
        sets_horizon: bool,
    ) -> CleanedBatch:
        """The batch with the `count` records in `data[start:end]`."""
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
        batch = bytearray(HEADER_SIZE) + records
        rebuilt = header._replace(
            batch_length=len(batch) - LOG_OVERHEAD,
            crc=0,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            records_count=count,
        )
        HEADER.pack_into(batch, 0, *rebuilt)
        crc = compute_crc(batch, 0, len(batch))
        write_crc(batch, 0, crc)
        return CleanedBatch(batch, rebuilt._replace(crc=crc), False)

    def _emptied(self, found: ScannedBatch) -> CleanedBatch | None:
        """The header alone, where somebody needs it."""
        header = found.header
        if not self._must_stay(header):
            return None
        if header.size == HEADER_SIZE:
            return CleanedBatch(found.bytes, header, True)
        batch = build_batch(
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
        return CleanedBatch(batch, read_header(batch), False)

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        last = self._producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset != NO_OFFSET:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _clean_legacy(self, found: ScannedBatch, keep_tombstones: bool) -> CleanedBatch | None:
        """A v0 or v1 message stays as it is. A wrapper that loses some becomes a v2 batch."""
        header = found.header
        records = read_records(found.data, found.start)
        latest = self._offsets.latest_offset
        kept = []
        for record in records:
            if record.offset > latest:
                kept.append(record)
            elif record.key is None:
                self._stats.invalid_messages += 1
            elif record.offset >= self._offsets.get(record.key) and (
                record.value is not None or keep_tombstones
            ):
                kept.append(record)
        if len(kept) == len(records):
            return CleanedBatch(found.bytes, header, True)
        if not kept:
            return self._emptied(found)
        batch = build_batch(
            kept,
            base_offset=kept[0].offset,
            compression=header.compression,
            timestamp_type=header.timestamp_type,
            partition_leader_epoch=header.partition_leader_epoch,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
        return CleanedBatch(batch, read_header(batch), False)

    def _warn_if_grown(self, before: BatchHeader, after: BatchHeader) -> None:
        if after.size > before.size and after.size > self._max_message_bytes:
            _log.warning(
                "the batch at offset %d has %d bytes after cleaning, more than max.message.bytes "
                "%d; old consumers may need a larger fetch size",
                after.base_offset,
                after.size,
                self._max_message_bytes,
            )


def map_batch(
    offsets: OffsetMap, found: ScannedBatch, start_offset: int, transactions: CleanedTransactions
) -> bool:
    """Puts the keys of a batch into the map, from `start_offset` on; False where it is full."""
    header = found.header
    if header.magic < MAGIC:
        for record in read_records(found.data, found.start):
            if record.key is None or record.offset < start_offset:
                continue
            if not offsets.put(record.key, record.offset):
                return False
    elif header.is_control:
        marker = read_end_txn_marker(found.data, found.start, header)
        transactions.on_control_batch(header, marker.control_type)
    elif not transactions.on_batch(header) and header.records_count:
        data, start, end = record_bytes(found.data, found.start, header)
        read = offsets.put_records(
            data, start, end, header.records_count, header.base_offset, start_offset
        )
        if read < header.records_count:
            return False
    if header.last_offset >= start_offset:
        offsets.advance(header.last_offset)
    return True
