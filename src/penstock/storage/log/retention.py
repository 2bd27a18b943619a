"""Which segments retention deletes (S4): a decision, nothing else.

LogSegments go from the oldest on, and only below the high watermark, so that the log start offset
never passes it. The active segment goes too once all of it is too old: the log then rolls first.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment


class Deletion(NamedTuple):
    """A segment that must go, and why."""

    segment: LogSegment
    reason: str


def segments_to_delete(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> list[Deletion]:
    """The oldest segments that nothing keeps: by start offset, by size, by time.

    Without `delete` in `cleanup.policy` only those below the log start offset go.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    excess = -1
    if config.delete and config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    deletions: list[Deletion] = []
    for segment, end in zip(segments, ends, strict=True):
        is_active = segment is segments[-1]
        if high_watermark < end or (is_active and not segment.size):
            break
        if not is_active and end <= log_start_offset:
            reason = f"below the log start offset {log_start_offset}"
        elif not config.delete:
            break
        elif excess >= segment.size:
            reason = f"beyond retention.bytes {config.retention_bytes}"
        elif 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            reason = f"older than retention.ms {config.retention_ms}"
        else:
            break
        excess -= segment.size
        deletions.append(Deletion(segment, reason))
    return deletions
