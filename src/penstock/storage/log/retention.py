"""Retention: deletion of the oldest segments by time, by size and by log start offset (S4).

Segments are deleted from the oldest on, and only below the high watermark, so that the log start
offset never passes it. Once all records of the active segment are too old, it is deleted too: the
log rolls first.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)


class Deletion(NamedTuple):
    """A segment to delete, and the reason."""

    segment: LogSegment
    reason: str


def delete_old_segments(log: Log) -> list[Deletion]:
    """Deletes the segments that retention no longer keeps; returns them with the reasons.

    Deletes nothing while the log's files are locked: the next retention check will.
    """
    log.guard.require_writable()
    if log.local.are_files_locked:
        return []
    now_ms = log.clock.now_ms()
    deletions = segments_to_delete(
        list(log.local.segments),
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        now_ms=now_ms,
    )
    if deletions:
        log.guard.run(lambda: _delete(log, [deletion.segment for deletion in deletions], now_ms))
        for deletion in deletions:
            logger.info("%s: deleted %r, %s", log.partition, deletion.segment, deletion.reason)
    return deletions


def _delete(log: Log, segments: list[LogSegment], now_ms: int) -> None:
    if len(segments) == len(log.local.segments):
        log.roll()
    next_segment = log.local.segments.higher(segments[-1].base_offset)
    if next_segment is not None:
        log.increment_log_start_offset(next_segment.base_offset)
    log.local.remove(segments, now_ms)
    log.producers.delete_snapshots(segment.base_offset for segment in segments)


def segments_to_delete(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> list[Deletion]:
    """Returns the oldest segments that are below the start offset, too many bytes, or too old.

    Without `delete` in `cleanup.policy` only those below the log start offset are returned.
    """
    end_offsets = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    excess_bytes = -1
    if config.delete and config.retention_bytes >= 0:
        excess_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    deletions: list[Deletion] = []
    for segment, end_offset in zip(segments, end_offsets, strict=True):
        is_active = segment is segments[-1]
        if high_watermark < end_offset or (is_active and not segment.size):
            break
        if not is_active and end_offset <= log_start_offset:
            reason = f"below the log start offset {log_start_offset}"
        elif not config.delete:
            break
        elif excess_bytes >= segment.size:
            reason = f"beyond retention.bytes {config.retention_bytes}"
        elif 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            reason = f"older than retention.ms {config.retention_ms}"
        else:
            break
        excess_bytes -= segment.size
        deletions.append(Deletion(segment, reason))
    return deletions
