"""Replacement of segments with the compacted ones that the log cleaner wrote from them (S5)."""

from collections.abc import Sequence

from penstock.storage.log.log import Log
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.staged_operation import StagedOperation, Steps


def begin_replacement(
    log: Log, new: Sequence[LogSegment], old: Sequence[LogSegment]
) -> StagedOperation[None]:
    """Replaces the `old` segments of the log with `new` ones.

    The log may be read, appended to and rolled while this runs; see `LocalLog.replace`.
    """
    return StagedOperation(log.guard.guard(_replace(log, new, old)))


def _replace(log: Log, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> Steps[None]:
    yield from log.local.replace(new, old, log.clock.now_ms())
    remaining_offsets = {segment.base_offset for segment in new}
    log.producers.delete_snapshots(
        segment.base_offset for segment in old if segment.base_offset not in remaining_offsets
    )
