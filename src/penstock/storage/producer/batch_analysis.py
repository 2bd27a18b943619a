"""How batches change the producer state: at an append, and when a log is loaded.

`analyze_batches` checks the batches before they are written, `BatchAnalysis.apply` changes the
state afterwards. `rebuild_producer_state` does both for batches that are in the log already, from
the last snapshot on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import LOG_OVERHEAD, BatchHeader
from penstock.records.control import read_end_txn_marker
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.producer.append_info import (
    BatchMetadata,
    CompletedTxn,
    ProducerAppendInfo,
    VerificationGuard,
)
from penstock.storage.producer.state_manager import ProducerStateManager
from penstock.storage.segment.batch_scan import ScannedBatch, scan_batches
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.segment.log_segments import LogSegments


class BatchAnalysis(NamedTuple):
    """The changes to the producer state that an append of some batches causes."""

    updates: dict[int, ProducerAppendInfo]
    completed_txns: list[CompletedTxn]
    verified_producer_ids: list[int]
    """Producers whose transaction no longer needs verification."""
    duplicate: BatchMetadata | None = None
    """The batch that was appended before: nothing must be written."""

    def apply(self, producers: ProducerStateManager, segment: LogSegment | None) -> None:
        """Changes the state, after the batches were appended to `segment`.

        Adds aborted transactions to its transaction index; None means that they are in it already.
        """
        for info in self.updates.values():
            producers.update(info)
        for producer_id in self.verified_producer_ids:
            producers.clear_verification_state_entry(producer_id)
        for txn in self.completed_txns:
            if txn.is_aborted and segment is not None:
                stable = producers.last_stable_offset(txn)
                segment.indexes.txn_index.append(
                    AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable)
                )
            producers.complete_txn(txn)


def analyze_batches(
    producers: ProducerStateManager,
    data: Buffer,
    headers: Sequence[BatchHeader],
    origin: AppendOrigin,
    *,
    start: int = 0,
    verify: bool = False,
    guard: VerificationGuard | None = None,
    transaction_version: int = -1,
) -> BatchAnalysis | None:
    """Checks the epochs, sequences and transactions of batches that are to be appended.

    The batches are in `data` from `start` on. Returns None if none of them has a producer id.
    Raises a KafkaError when a producer is fenced or out of order. With `verify`, the first batch
    of a transaction needs the guard under which the coordinator confirmed it.
    """
    updates: dict[int, ProducerAppendInfo] = {}
    completed_txns: list[CompletedTxn] = []
    verified_producer_ids: list[int] = []
    position = start
    for header in headers:
        at = position
        position += header.batch_length + LOG_OVERHEAD
        producer_id = header.producer_id
        if producer_id < 0:
            continue
        if origin is AppendOrigin.CLIENT:
            duplicate = producers.find_duplicate(header)
            if duplicate is not None:
                return BatchAnalysis({}, [], [], duplicate)
        if verify and origin is not AppendOrigin.REPLICATION:
            _require_verified(producers, header, guard)
        info = updates.get(producer_id)
        if info is None:
            info = updates[producer_id] = producers.prepare_update(producer_id, origin)
        marker = read_end_txn_marker(data, at, header) if header.is_control else None
        completed = info.append(header, marker=marker, transaction_version=transaction_version)
        if completed is not None:
            completed_txns.append(completed)
        if header.is_transactional and _ends_verification(producers, header):
            verified_producer_ids.append(producer_id)
    if not updates:
        return None
    return BatchAnalysis(updates, completed_txns, verified_producer_ids)


def _ends_verification(producers: ProducerStateManager, header: BatchHeader) -> bool:
    """Returns whether the batch completes or ends the transaction that was to be verified.

    A marker with the epoch of a newer transaction's entry belongs to the previous transaction:
    with KIP-890 each transaction has its own epoch.
    """
    entry = producers.verification_state_entry(header.producer_id)
    if entry is None:
        return False
    belongs_to_next = header.is_control and header.producer_epoch == entry.epoch
    return not (entry.supports_epoch_bump and belongs_to_next)


def _require_verified(
    producers: ProducerStateManager, header: BatchHeader, guard: VerificationGuard | None
) -> None:
    if not header.is_transactional or header.is_control:
        return
    if producers.has_ongoing_transaction(header.producer_id, header.producer_epoch):
        return
    producers.refuse_old_epoch(header.producer_id, header.producer_epoch)
    verification = producers.verification_state_entry(header.producer_id)
    if guard is None or verification is None or verification.guard is not guard:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has no open transaction in {producers.topic_partition}",
            remedy="begin one, or abort and begin again",
        )


def replay(
    producers: ProducerStateManager, batch: ScannedBatch, segment: LogSegment | None
) -> None:
    """Applies a batch that is in the log to the state."""
    analysis = analyze_batches(
        producers, batch.data, (batch.header,), AppendOrigin.REPLICATION, start=batch.start
    )
    if analysis is not None:
        analysis.apply(producers, segment)
    producers.map_end_offset = batch.header.next_offset


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Rebuilds the state from the log below `end_offset` and writes a snapshot of it.

    It starts from the last snapshot that is not above `end_offset` and replays the rest.
    """
    # Truncation and recovery read at most one earlier segment: with snapshots at the start of the
    # last two segments they need not read the rest of the log.
    snapshot_offsets = set(segments.base_offsets[-2:])
    has_nothing_to_load = producers.is_empty and producers.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if end_offset > producers.map_end_offset and not has_nothing_to_load:
        for segment in segments.between(producers.map_end_offset, end_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start
            if segment.base_offset in snapshot_offsets:
                producers.take_snapshot()
            _replay_segment(producers, segment, start, end_offset)
    producers.map_end_offset = end_offset
    producers.take_snapshot()


def _replay_segment(
    producers: ProducerStateManager, segment: LogSegment, start: int, end_offset: int
) -> None:
    first = segment.find(start)
    if first is None:
        return
    end = segment.find(end_offset)
    limit = segment.size if end is None else end.position
    for batch in scan_batches(segment.file, first.position, limit):
        replay(producers, batch, None)
