"""Planning of compaction: which logs, and which part of each log, to clean (S5).

A compacted log has a clean head, in which each key occurs once, and a dirty tail. The first dirty
offset is stored in `cleaner-offset-checkpoint` by the last cleaning. The tail can be cleaned up to
the first uncleanable offset: the active segment, open transactions and records younger than
`min.compaction.lag.ms` are not cleaned. Records that may not be durable are not cleaned either,
because recovery would take the gaps for losses.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.storage.log.log import Log
from penstock.storage.log_config import INT_MAX, LONG_MAX
from penstock.storage.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)


class LogToClean(NamedTuple):
    """A log and its cleanable range."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """For how long `max.compaction.lag.ms` has been exceeded; 0 if it is not."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the dirty ratio is large enough, or `max.compaction.lag.ms` is exceeded."""
        if not self.cleanable_bytes:
            return False
        return self.overdue_ms > 0 or (
            self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio
        )


def first_dirty_offset(log: Log, checkpoint: int | None) -> int:
    """Returns the first dirty offset; the log start offset if the checkpoint is invalid."""
    start = log.log_start_offset
    if checkpoint is None:
        return start
    if checkpoint < start:
        # Retention raises the start offset of a log with cleanup.policy=compact,delete.
        if not log.config.delete:
            logger.warning(
                "%s starts at %d, after its cleaner checkpoint %d; cleaning all of it",
                log.partition,
                start,
                checkpoint,
            )
        return start
    if checkpoint > log.log_end_offset:
        logger.warning(
            "%s ends at %d, before its cleaner checkpoint %d: records were lost or truncated; "
            "cleaning all of it",
            log.partition,
            log.log_end_offset,
            checkpoint,
        )
        return start
    return checkpoint


def log_to_clean(log: Log, checkpoint: int | None, now_ms: int) -> LogToClean:
    """Returns the range of a log that can be cleaned now, durable or not."""
    first_dirty = first_dirty_offset(log, checkpoint)
    uncleanable = max(first_dirty, _first_uncleanable(log, first_dirty, now_ms))
    return _range(log, first_dirty, uncleanable, now_ms)


def durable_part(candidate: LogToClean, recovery_point: int, now_ms: int) -> LogToClean:
    """Returns the range without segments that are not entirely below the recovery point."""
    end = min(candidate.first_uncleanable_offset, recovery_point)
    return _range(candidate.log, candidate.first_dirty_offset, end, now_ms)


def _range(log: Log, first_dirty: int, uncleanable: int, now_ms: int) -> LogToClean:
    segments = log.local.segments
    end = segments.from_floor(uncleanable)[0].base_offset
    return LogToClean(
        log,
        first_dirty,
        end,
        _size(segment for segment in segments if segment.base_offset < first_dirty),
        _size(segments.between(min(first_dirty, end), end)),
        _overdue_ms(log, first_dirty, now_ms),
    )


def _size(segments: Iterable[LogSegment]) -> int:
    return sum(segment.size for segment in segments)


def _first_uncleanable(log: Log, first_dirty: int, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.local.segments.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _dirty_segments(log, first_dirty):
            if segment.largest_timestamp > now_ms - lag_ms:
                return min(bound, segment.base_offset)
    return bound


def _overdue_ms(log: Log, first_dirty: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return 0
    times = (segment.first_timestamp for segment in _dirty_segments(log, first_dirty))
    earliest = min((timestamp for timestamp in times if timestamp > 0), default=now_ms)
    return max(now_ms - lag_ms - earliest, 0)


def _dirty_segments(log: Log, first_dirty: int) -> list[LogSegment]:
    """Returns the segments with dirty records, without the active one."""
    segments = log.local.segments
    return [
        segment for segment in segments.from_floor(first_dirty) if segment is not segments.active
    ]


def by_dirty_ratio(candidates: Iterable[LogToClean]) -> list[LogToClean]:
    """Returns the logs that are due, the one with the largest dirty ratio first."""
    due = (candidate for candidate in candidates if candidate.is_due)
    return sorted(due, key=lambda candidate: candidate.cleanable_ratio, reverse=True)


class SegmentSizes(NamedTuple):
    """The base offset and the sizes of a segment, for grouping."""

    base_offset: int
    size: int
    offset_index_size: int
    time_index_size: int


def group_segments(
    segments: Sequence[SegmentSizes],
    *,
    max_size: int,
    max_index_size: int,
    first_uncleanable_offset: int,
) -> list[range]:
    """Groups adjacent segments that become one, so that cleaned logs do not have tiny segments.

    A group is within `segment.bytes` and `segment.index.bytes`, measured before the cleaning, and
    within the 31 bits of an offset in an index. Each group is a range of positions in `segments`.
    """
    groups: list[range] = []
    ends = [segment.base_offset for segment in segments[1:]] + [first_uncleanable_offset]
    start = 0
    while start < len(segments):
        base_offset, size, index_size, time_index_size = segments[start]
        after = start + 1
        while after < len(segments):
            segment = segments[after]
            size += segment.size
            index_size += segment.offset_index_size
            time_index_size += segment.time_index_size
            # The last offset of a segment is below the next segment. An empty segment has none;
            # otherwise one segment would remain for every 2**31 offsets.
            is_far = segment.size > 0 and ends[after] - 1 - base_offset > INT_MAX
            if size > max_size or max(index_size, time_index_size) > max_index_size or is_far:
                break
            after += 1
        groups.append(range(start, after))
        start = after
    return groups
