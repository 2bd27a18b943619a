"""The log of one partition as segments that come and go: roll, truncate, delete, replace.

What needs several syncs is a `StagedOperation`: the changes are made on the log's own thread, the
syncs on any other. `Log` puts appends and flushes on top.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.core.clock import Clock
from penstock.core.errors import OffsetOutOfRangeError
from penstock.core.ids import TopicId, TopicPartition
from penstock.records.batch import TimestampType
from penstock.storage.checkpoint.leader_epoch_cache import LeaderEpochCache
from penstock.storage.log.local_log import LocalLog
from penstock.storage.log.readable_log import ReadableLog
from penstock.storage.log.retention import Deletion, segments_to_delete
from penstock.storage.log_config import LogConfig
from penstock.storage.producer.batch_analysis import rebuild_producer_state
from penstock.storage.producer.state_manager import ProducerStateManager
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.staged_operation import StagedOperation, Steps

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class SegmentedLog(ReadableLog):
    """What changes a log without adding records."""

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        clock: Clock,
        *,
        log_start_offset: int,
        topic_id: TopicId | None,
        on_failure: Callable[[OSError], None],
        roll_jitter: Callable[[int], int],
    ) -> None:
        super().__init__(
            partition,
            local,
            epochs,
            producers,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            on_failure=on_failure,
        )
        self._clock = clock
        self._roll_jitter = roll_jitter
        self._unsynced_snapshots: list[int] = []
        self.config = local.config
        local.segments.active.roll_jitter_ms = self._draw_jitter()

    # --- settings

    @property
    def config(self) -> LogConfig:
        return self.local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.local.config = config
        self._policy = config.append_policy
        self._is_append_time = self._policy.timestamp_type is TimestampType.LOG_APPEND_TIME

    # --- roll

    def roll(self, base_offset: int | None = None) -> LogSegment:
        """Seals the active segment and starts a new one, at the log end offset or after it."""
        self._require_writable()
        start = self.log_end_offset if base_offset is None else base_offset
        return self._guarded(lambda: self._roll(start, self._clock.now_ms()))

    def _roll(self, base_offset: int, now_ms: int) -> LogSegment:
        segment = self.local.roll(base_offset, now_ms, roll_jitter_ms=self._draw_jitter())
        # With a snapshot at each segment's start, recovery reads no more than one segment.
        self.producers.map_end_offset = base_offset
        self._take_snapshot()
        return segment

    def _take_snapshot(self) -> None:
        """Writes the producers' state; the next flush makes that durable."""
        if self.producers.take_snapshot(sync=False) is not None:
            self._unsynced_snapshots.append(self.producers.map_end_offset)

    def _draw_jitter(self) -> int:
        return self._roll_jitter(min(self.config.segment_jitter_ms, self.config.segment_ms))

    # --- truncate

    def truncate_to(self, offset: int) -> bool:
        """`begin_truncation`, here and now."""
        return self.begin_truncation(offset).complete()

    def begin_truncation(self, offset: int) -> StagedOperation[bool]:
        """Drops the records from `offset` on; the result says whether there were any (R4).

        Until it has ended the log may be read, and nothing else may be done to it: appends would
        get offsets that are about to go. It is a RuntimeError to begin one while `local.is_busy`:
        a flush, a replacement or a swap is under way then. The recovery points must be stored after
        it, before anything is appended.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate to {offset}")
        return StagedOperation(self._in_turns(self._truncate(offset)))

    def _truncate(self, offset: int) -> Steps[bool]:
        if offset >= self.log_end_offset:
            # A leader that never appended may have left an epoch behind at the end.
            self.epochs.truncate_from_end(self.log_end_offset)
            yield from self._store_epochs()
            return False
        if offset < self.local.segments.first.base_offset:
            yield from self._truncate_fully(offset, None)
            return True
        now_ms = self._clock.now_ms()
        gone = yield from self.local.truncate_to(offset, now_ms)
        self._drop_snapshots(gone)
        self.epochs.truncate_from_end(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        rebuild_producer_state(
            self.producers, self.local.segments, self.log_start_offset, offset, now_ms
        )
        self.update_high_watermark(min(self.high_watermark, offset))
        yield from self._store_epochs()
        return True

    def _store_epochs(self) -> Steps[None]:
        if self.epochs.is_stale:
            yield self.epochs.begin_write().write

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drops everything, here and now; the next record gets `offset`."""
        self.begin_full_truncation(offset, log_start_offset).complete()

    def begin_full_truncation(
        self, offset: int, log_start_offset: int | None = None
    ) -> StagedOperation[None]:
        """Drops everything; the next record gets `offset`. As `begin_truncation` otherwise."""
        return StagedOperation(self._in_turns(self._truncate_fully(offset, log_start_offset)))

    def _truncate_fully(self, offset: int, log_start_offset: int | None) -> Steps[None]:
        gone = yield from self.local.truncate_fully(offset, self._clock.now_ms())
        self._drop_snapshots(gone)
        self.epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.update_high_watermark(offset)
        yield from self._store_epochs()

    def _in_turns(self, steps: Steps[_T]) -> Steps[_T]:
        """Ends with the log: where it fails, or is deleted, in between, nothing more is done."""
        try:
            self._require_writable()
            work = next(steps)
            while True:
                yield work
                self._require_writable()
                work = next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        except OSError as error:
            self._fail(error)
        finally:
            steps.close()

    def _drop_snapshots(self, gone: Iterable[LogSegment]) -> None:
        for segment in gone:
            self.producers.delete_snapshot(segment.base_offset)

    # --- delete

    def increment_log_start_offset(self, offset: int) -> bool:
        """Makes `offset` the first one that can be read (DeleteRecords); says whether it rose."""
        self._require_writable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.partition} cannot start at {offset}: its high watermark is "
                f"{self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start_offset_incremented(offset)
        return True

    def delete_old_segments(self) -> list[Deletion]:
        """Deletes what retention no longer keeps (S4); says what and why.

        Nothing while the log is held: it is for the next time then.
        """
        self._require_writable()
        if self.local.are_files_locked:
            return []
        now_ms = self._clock.now_ms()
        deletions = segments_to_delete(
            list(self.local.segments),
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )
        if deletions:
            self._guarded(lambda: self._delete([item.segment for item in deletions], now_ms))
            for item in deletions:
                _log.info("%s: deleted %r, %s", self.partition, item.segment, item.reason)
        return deletions

    def _delete(self, gone: list[LogSegment], now_ms: int) -> None:
        if len(gone) == len(self.local.segments):
            self._roll(self.log_end_offset, now_ms)
        following = self.local.segments.higher(gone[-1].base_offset)
        if following is not None:
            self.increment_log_start_offset(following.base_offset)
        self.local.remove(gone, now_ms)
        self._drop_snapshots(gone)

    def purge_deleted(self) -> int:
        """Removes files whose `file.delete.delay.ms` has passed."""
        return self._guarded(lambda: self.local.purge(self._clock.now_ms()))

    # --- replace

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """`begin_replacement`, here and now."""
        self.begin_replacement(new, old).complete()

    def begin_replacement(
        self, new: Sequence[LogSegment], old: Sequence[LogSegment]
    ) -> StagedOperation[None]:
        """Puts compacted segments in the place of the ones they were made from (S5).

        The log goes on being read, appended to and rolled, and is held: see `LocalLog.replace`.
        """
        return StagedOperation(self._in_turns(self._replace(new, old)))

    def _replace(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> Steps[None]:
        yield from self.local.replace(new, old, self._clock.now_ms())
        kept = {segment.base_offset for segment in new}
        self._drop_snapshots(segment for segment in old if segment.base_offset not in kept)
