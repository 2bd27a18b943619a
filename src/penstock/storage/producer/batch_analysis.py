"""From batches to producer state: what an append would change, and what a log implies.

`analyze_batches` decides before anything is written, `BatchAnalysis.apply` changes the state after.
`rebuild_producer_state` does both for batches that are in the log already, from the last snapshot
on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.batch import LOG_OVERHEAD, BatchHeader
from penstock.records.control import read_end_txn_marker
from penstock.records.validate import AppendOrigin
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
    """What appending some batches does to their producers."""

    updates: dict[int, ProducerAppendInfo]
    completed: list[CompletedTxn]
    verified: list[int]
    """Producers whose transaction needs no verification any more."""
    duplicate: BatchMetadata | None = None
    """The batch was appended before, as this: nothing is to be written."""

    def apply(self, producers: ProducerStateManager, segment: LogSegment | None) -> None:
        """Changes the state, now that the batches are in the log.

        Aborted transactions go into the index of `segment`; with None they are there already.
        """
        for info in self.updates.values():
            producers.update(info)
        for producer_id in self.verified:
            producers.clear_verification_state_entry(producer_id)
        for txn in self.completed:
            if txn.is_aborted and segment is not None:
                stable = producers.last_stable_offset(txn)
                segment.txn_index.append(
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
    """Checks epochs, sequences and transactions of batches to be appended; None: nothing to check.

    The batches lie in `data` from `start` on. Raises where a producer is fenced or out of order.
    With `verify`, the first batch of a transaction needs the guard under which the coordinator
    confirmed it.
    """
    updates: dict[int, ProducerAppendInfo] = {}
    completed: list[CompletedTxn] = []
    verified: list[int] = []
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
        ended = info.append(header, marker=marker, transaction_version=transaction_version)
        if ended is not None:
            completed.append(ended)
        if header.is_transactional and _ends_verification(producers, header):
            verified.append(producer_id)
    return BatchAnalysis(updates, completed, verified) if updates else None


def _ends_verification(producers: ProducerStateManager, header: BatchHeader) -> bool:
    """Whether what was to be verified is in the log now, or over.

    A marker with the epoch of a newer transaction's entry belongs to the one before: each
    transaction has an epoch of its own there (KIP-890).
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
            f"producer {header.producer_id} has no open transaction in "
            f"{producers.topic_partition}: begin one, or abort and begin again",
        )


def replay(
    producers: ProducerStateManager, found: ScannedBatch, segment: LogSegment | None
) -> None:
    """Takes a batch that is in the log into the state."""
    analysis = analyze_batches(
        producers, found.data, (found.header,), AppendOrigin.REPLICATION, start=found.start
    )
    if analysis is not None:
        analysis.apply(producers, segment)
    producers.map_end_offset = found.header.next_offset


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Makes the state what the log below `end_offset` implies, and snapshots it there.

    It starts from the last snapshot that is not above `end_offset` and reads the rest.
    """
    bases = segments.base_offsets
    # Truncation and recovery look back one segment at most: snapshots at the start of the last
    # two spare them the rest of the log.
    worth_a_snapshot = set(bases[-2:])
    nothing_to_load = producers.is_empty and producers.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if end_offset > producers.map_end_offset and not nothing_to_load:
        for segment in segments.between(producers.map_end_offset, end_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start
            if segment.base_offset in worth_a_snapshot:
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
    for found in scan_batches(segment.file, first.position, limit):
        replay(producers, found, None)
