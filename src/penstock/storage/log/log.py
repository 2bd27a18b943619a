"""The log of one partition: what is appended, flushed and moved.

Whoever leads the partition tells the log its high watermark. `readable_log` has what can be read,
`segmented_log` what becomes of segments.

A log is used by one thread. What would block it is handed out: `begin_flush` gives a task that may
run on another thread. After an I/O error the log refuses every change with a `KafkaStorageError`
and stays readable.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from penstock.core.buffers import Buffer, WritableBuffer
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, InvalidRecordError, KafkaError
from penstock.core.ids import NO_TIMESTAMP, TopicId, TopicPartition
from penstock.records.batch import BatchHeader
from penstock.records.prepare import PreparedAppend, is_heavy
from penstock.records.validate import (
    AppendOrigin,
    assign_plain,
    validate_and_assign,
    verify_batches,
)
from penstock.storage.checkpoint.leader_epoch_cache import LeaderEpochCache
from penstock.storage.log.local_log import FlushTask, LocalLog
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.log.segmented_log import SegmentedLog
from penstock.storage.log_config import INT_MAX
from penstock.storage.producer.append_info import VerificationGuard
from penstock.storage.producer.batch_analysis import analyze_batches
from penstock.storage.producer.state_manager import ProducerStateManager


class Log(SegmentedLog):
    """One partition's log. `penstock.storage.log.log_loader.load_log` opens one."""

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        clock: Clock,
        *,
        log_start_offset: int,
        high_watermark: int = 0,
        topic_id: TopicId | None = None,
        verify_transactions: bool = False,
        on_failure: Callable[[OSError], None] = lambda error: None,
        roll_jitter: Callable[[int], int] = lambda limit: 0,
    ) -> None:
        super().__init__(
            partition,
            local,
            epochs,
            producers,
            clock,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            on_failure=on_failure,
            roll_jitter=roll_jitter,
        )
        self.last_flush_ms = clock.now_ms()
        self.verify_transactions = verify_transactions
        """`transaction.partition.verification.enable`, which may change."""
        self.successor: Log | None = None
        """The log that has its records, and all that came since, after a move."""
        self.update_high_watermark(high_watermark)

    # --- append

    def append_as_leader(
        self,
        data: WritableBuffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = -1,
    ) -> LogAppendInfo:
        """Validates the batches, gives them offsets (in place where possible) and appends them.

        All or nothing: an error that says why leaves the log as it was. A batch that was
        appended before is answered with its first offsets (P3).
        """
        if self.failure is not None:
            raise self.failure
        now_ms = self._clock.now_ms()
        policy = self._policy
        if origin is AppendOrigin.CLIENT and policy.is_plain:
            header = assign_plain(data, self.local.next_offset, leader_epoch, now_ms, policy)
            if header is not None:
                # 0.6 µs less than with everything below, of 4 for a small batch.
                return self._append(
                    data, (header,), now_ms, origin, verification_guard, transaction_version
                )
        assigned = validate_and_assign(
            data,
            next_offset=self.local.next_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            policy=policy,
            origin=origin,
        )
        info = self._append(
            assigned.buffer,
            assigned.headers,
            now_ms,
            origin,
            verification_guard,
            transaction_version,
        )
        if self._is_append_time and not info.duplicate:
            return structs.replace(info, log_append_time=now_ms)
        return info

    def begin_append(
        self, data: WritableBuffer, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> PreparedAppend | None:
        """The slow part of an append, to be run on any thread and given to `finish_append`.

        None where there is nothing slow about it: call `append_as_leader`.
        """
        if not is_heavy(data, self._policy):
            return None
        return PreparedAppend(data, self._policy, origin, self._clock.now_ms())

    def finish_append(
        self,
        prepared: PreparedAppend,
        leader_epoch: int,
        *,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = -1,
    ) -> LogAppendInfo:
        """`append_as_leader` for what `begin_append` gave: same bytes, same errors.

        Where the settings have changed meanwhile, it starts over, here and now.
        """
        if prepared.policy != self._policy:
            return self.append_as_leader(
                prepared.data,
                leader_epoch,
                origin=prepared.origin,
                verification_guard=verification_guard,
                transaction_version=transaction_version,
            )
        self._require_writable()
        now_ms = self._clock.now_ms()
        assigned = prepared.place(self.local.next_offset, leader_epoch, now_ms)
        info = self._append(
            assigned.buffer,
            assigned.headers,
            now_ms,
            prepared.origin,
            verification_guard,
            transaction_version,
        )
        if self._is_append_time and not info.duplicate:
            return structs.replace(info, log_append_time=now_ms)
        return info

    def append_as_follower(self, data: Buffer) -> LogAppendInfo:
        """Appends batches that a leader has given their offsets and epochs."""
        self._require_writable()
        headers = [header for _, header in verify_batches(data)]
        if not headers:
            raise InvalidRecordError("no batch to append")
        if headers[0].base_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition} ends at {self.log_end_offset}; the leader sent offset "
                f"{headers[0].base_offset}: truncate first",
            )
        return self._append(data, headers, self._clock.now_ms(), AppendOrigin.REPLICATION)

    def _append(
        self,
        data: Buffer,
        headers: Sequence[BatchHeader],
        now_ms: int,
        origin: AppendOrigin,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = -1,
    ) -> LogAppendInfo:
        local = self.local
        config = local.config
        if len(data) > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(data)} bytes for {self.partition} are more than its segment.bytes "
                f"{config.segment_bytes}: send smaller batches or raise segment.bytes",
            )
        analysis = None
        if headers[0].producer_id >= 0 or len(headers) > 1:
            analysis = analyze_batches(
                self.producers,
                data,
                headers,
                origin,
                verify=self.verify_transactions,
                guard=verification_guard,
                transaction_version=transaction_version,
            )
        if analysis is not None and analysis.duplicate is not None:
            duplicate = analysis.duplicate
            return LogAppendInfo(
                duplicate.first_offset,
                duplicate.last_offset,
                duplicate.timestamp,
                self.log_start_offset,
                duplicate=True,
                flush_due=False,
                rolled=False,
            )
        first, last = headers[0], headers[-1]
        max_timestamp = first.max_timestamp
        if first is not last:
            max_timestamp = max(header.max_timestamp for header in headers)
        last_offset = last.base_offset + last.last_offset_delta
        try:
            latest = self.epochs.latest_epoch
            if latest is None or last.partition_leader_epoch > latest:
                self._note_epochs(headers)
            active = local.segments.active
            rolled = active.should_roll(config, len(data), max_timestamp, last_offset, now_ms)
            if rolled:
                # A compacted leader sends batches with gaps between them. The segment starts at
                # the log's end where it can: recovery takes a gap between segments for a loss.
                near = last_offset - local.next_offset <= INT_MAX
                active = self._roll(local.next_offset if near else first.base_offset, now_ms)
            local.append(active, data, headers)
            if analysis is not None:
                analysis.apply(self.producers, active)
        except OSError as error:
            self._fail(error)
        end_offset = local.next_offset
        self.producers.map_end_offset = end_offset
        return LogAppendInfo(
            first.base_offset,
            end_offset - 1,
            NO_TIMESTAMP,
            self.log_start_offset,
            False,
            end_offset - local.recovery_point >= config.flush_messages,
            rolled,
        )

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        for header in headers:
            if header.partition_leader_epoch >= 0:
                self.epochs.note(header.partition_leader_epoch, header.base_offset)

    # --- move

    def take_over(self, other: "Log") -> None:
        """Becomes what `other` is: the log has the same records, in another directory.

        Nothing of it is durable before the next flush.
        """
        self._guarded(lambda: self._take_over(other))

    def _take_over(self, other: "Log") -> None:
        self.epochs.replace_all(other.epochs.entries())
        self.producers.take_over(other.producers)
        self.verify_transactions = other.verify_transactions
        self._take_snapshot()
        self.config = other.config
        self.log_start_offset = other.log_start_offset
        self.update_high_watermark(other.high_watermark)

    def moved_to(self, directory: str) -> None:
        """Takes note that the directory was renamed."""
        self.local.moved_to(directory)
        self.epochs.directory = directory
        self.producers.directory = directory

    # --- flush, close

    def begin_flush(self) -> FlushTask | None:
        """A flush to be run on any thread and then given to `finish_flush`.

        None where everything is durable, another flush is under way, or the log is held.
        """
        return None if self.local.is_busy else self._flush_task()

    def _flush_task(self) -> FlushTask | None:
        task = self.local.begin_flush()
        if task is not None:
            if self.epochs.is_stale:
                # Before the recovery point moves: recovery looks for epochs above it only.
                task.also.append(self.epochs.begin_write().write)
            for offset in self._unsynced_snapshots:
                task.also.append(partial(self.producers.flush_snapshot, offset))
            self._unsynced_snapshots = []
        return task

    def finish_flush(self, task: FlushTask, error: OSError | None = None) -> None:
        """Takes note of a flush. After a failed one nothing can be trusted to be on disk."""
        self.local.finish_flush(task, done=error is None)
        if error is not None:
            self._fail(error)
        self.last_flush_ms = self._clock.now_ms()

    def flush(self) -> None:
        """Makes everything that was appended durable, here and now."""
        task = self._flush_task()
        if task is not None:
            try:
                task.run()
            except OSError as error:
                self.finish_flush(task, error)
            self.finish_flush(task)

    @property
    def flush_due(self) -> bool:
        """Whether `flush.ms` or `flush.messages` asks for a flush, or a sealed segment waits."""
        if not self.local.unflushed:
            return False
        return (
            self.local.has_unflushed_sealed_segment
            or self.local.unflushed >= self.config.flush_messages
            or self._clock.now_ms() - self.last_flush_ms >= self.config.flush_ms
        )

    def close(self) -> None:
        """Flushes everything and lets go of the files."""
        if self.failure is not None:
            self.local.close_handlers()
            return
        self._guarded(self._close)

    def _close(self) -> None:
        if self.epochs.is_stale:
            self.epochs.flush()
        # The snapshot spares the next start a scan of the last segment.
        self.producers.take_snapshot()
        self.local.close()
