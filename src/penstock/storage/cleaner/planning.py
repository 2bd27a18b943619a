"""What compaction should do: decisions, nothing else (S5).

A compacted log has a clean head, where each key is there once, and a dirty tail. The first dirty
offset is what the last cleaning left in `cleaner-offset-checkpoint`. The tail can be cleaned up to
the first uncleanable offset: the active segment, undecided transactions and records younger than
`min.compaction.lag.ms` stay as they are, and so does what is not known to be on disk, because
recovery takes a gap there for a loss.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.storage.log.log import Log
from penstock.storage.log_config import INT_MAX, LONG_MAX
from penstock.storage.segment.log_segment import LogSegment

_log = logging.getLogger(__name__)


class LogToClean(NamedTuple):
    """A log and what of it can be cleaned."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """How long ago `max.compaction.lag.ms` asked for a cleaning; 0 where it does not."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether there is enough to clean, or some of it has waited too long."""
        if not self.cleanable_bytes:
            return False
        return self.overdue_ms > 0 or (
            self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio
        )


def first_dirty_offset(log: Log, checkpoint: int | None) -> int:
    """Where the dirty part starts; the log start offset where the checkpoint cannot be right."""
    start = log.log_start_offset
    if checkpoint is None:
        return start
    if checkpoint < start:
        # Retention moves the start of a log that is also deleted from: no news.
        if not log.config.delete:
            _log.warning(
                "%s starts at %d, after the offset %d that it was cleaned to; cleaning all of it",
                log.partition,
                start,
                checkpoint,
            )
        return start
    if checkpoint > log.log_end_offset:
        _log.warning(
            "%s ends at %d, before the offset %d that it was cleaned to: records were lost or "
            "truncated; cleaning all of it",
            log.partition,
            log.log_end_offset,
            checkpoint,
        )
        return start
    return checkpoint


def log_to_clean(log: Log, checkpoint: int | None, now_ms: int) -> LogToClean:
    """What of a log can be cleaned now, flushed or not."""
    first_dirty = first_dirty_offset(log, checkpoint)
    uncleanable = max(first_dirty, _first_uncleanable(log, first_dirty, now_ms))
    return _range(log, first_dirty, uncleanable, now_ms)


def durable_part(found: LogToClean, recovery_point: int, now_ms: int) -> LogToClean:
    """The same without the segments that are not wholly below the recovery point."""
    end = min(found.first_uncleanable_offset, recovery_point)
    return _range(found.log, found.first_dirty_offset, end, now_ms)


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
    """The segments that hold dirty records, without the active one."""
    segments = log.local.segments
    return [
        segment for segment in segments.from_floor(first_dirty) if segment is not segments.active
    ]


def by_dirty_ratio(candidates: Iterable[LogToClean]) -> list[LogToClean]:
    """The logs that are due, the one with the largest dirty share first."""
    due = (candidate for candidate in candidates if candidate.is_due)
    return sorted(due, key=lambda candidate: candidate.cleanable_ratio, reverse=True)


class SegmentFacts(NamedTuple):
    """What grouping must know of a segment."""

    base_offset: int
    size: int
    offset_index_size: int
    time_index_size: int


def group_segments(
    segments: Sequence[SegmentFacts],
    *,
    max_size: int,
    max_index_size: int,
    first_uncleanable_offset: int,
) -> list[range]:
    """Which neighbours become one segment, so that cleaned logs do not end in crumbs.

    A group keeps within `segment.bytes` and `segment.index.bytes`, counted before the cleaning,
    and within the 31 bits that an index has for an offset. Each is a range of positions in
    `segments`.
    """
    groups: list[range] = []
    ends = [segment.base_offset for segment in segments[1:]] + [first_uncleanable_offset]
    start = 0
    while start < len(segments):
        base_offset, size, index_size, time_index_size = segments[start]
        after = start + 1
        while after < len(segments):
            following = segments[after]
            size += following.size
            index_size += following.offset_index_size
            time_index_size += following.time_index_size
            # The last offset of a segment is at most the one before the next segment. An empty
            # one has none to store, or else there would stay one for every 2**31 offsets.
            far = following.size > 0 and ends[after] - 1 - base_offset > INT_MAX
            if size > max_size or max(index_size, time_index_size) > max_index_size or far:
                break
            after += 1
        groups.append(range(start, after))
        start = after
    return groups
