"""Truncation of a log: drops records from the end, or all of them (R4).

A replica that follows another leader truncates to the offset where the two logs diverge
(the result of `Log.end_offset_for_epoch` on the leader). `LogManager.begin_truncation` calls these
functions and stores the new recovery point.

Until a truncation has ended, the log may be read, but nothing may be appended: the records would
get offsets that are about to be removed. It is a RuntimeError to begin one while the log
`local.is_busy` with a flush, a replacement or the end of a move.
"""

from penstock.storage.checkpoint.leader_epoch_cache import LeaderEpochCache
from penstock.storage.log.log import Log
from penstock.storage.producer.batch_analysis import rebuild_producer_state
from penstock.storage.staged_operation import StagedOperation, Steps


def begin_truncation(log: Log, offset: int) -> StagedOperation[bool]:
    """Drops the records from `offset` on; the result is whether there were any.

    The recovery point must be stored after it, before anything is appended.
    """
    if offset < 0:
        raise ValueError(f"cannot truncate {log.partition} to {offset}")
    return StagedOperation(log.guard.guard(_truncate(log, offset)))


def begin_full_truncation(
    log: Log, offset: int, log_start_offset: int | None = None
) -> StagedOperation[None]:
    """Drops all records; the next record gets `offset`. Otherwise like `begin_truncation`."""
    return StagedOperation(log.guard.guard(_truncate_fully(log, offset, log_start_offset)))


def _truncate(log: Log, offset: int) -> Steps[bool]:
    if offset >= log.log_end_offset:
        # A leader that never appended may have left an epoch at the end.
        log.epochs.truncate_from_end(log.log_end_offset)
        yield from _write_epochs(log.epochs)
        return False
    if offset < log.local.segments.first.base_offset:
        yield from _truncate_fully(log, offset, None)
        return True
    now_ms = log.clock.now_ms()
    removed_segments = yield from log.local.truncate_to(offset, now_ms)
    log.producers.delete_snapshots(segment.base_offset for segment in removed_segments)
    log.epochs.truncate_from_end(offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    rebuild_producer_state(log.producers, log.local.segments, log.log_start_offset, offset, now_ms)
    log.update_high_watermark(min(log.high_watermark, offset))
    yield from _write_epochs(log.epochs)
    return True


def _truncate_fully(log: Log, offset: int, log_start_offset: int | None) -> Steps[None]:
    removed_segments = yield from log.local.truncate_fully(offset, log.clock.now_ms())
    log.producers.delete_snapshots(segment.base_offset for segment in removed_segments)
    log.epochs.clear()
    log.producers.truncate_fully_and_start_at(offset)
    log.log_start_offset = offset if log_start_offset is None else log_start_offset
    log.update_high_watermark(offset)
    yield from _write_epochs(log.epochs)


def _write_epochs(epochs: LeaderEpochCache) -> Steps[None]:
    if epochs.is_stale:
        yield epochs.begin_write().write
