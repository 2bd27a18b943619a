"""Compaction of a broker's logs, one after the other, on worker threads (S5).

The caller gets a task from `begin` on the event loop, runs it on any thread, and returns it::

    task = cleaner.begin()                    # None: nothing to do for log.cleaner.backoff.ms
    while task is not None:
        await loop.run_in_executor(pool, task.run)
        task = cleaner.finish(task)

Nothing is locked while a cleaning runs: the log may be appended to and rolled, and segments may be
deleted. `finish` uses the new segment if the log still has the segments it was written from, and
discards it otherwise. All blocking work is a task of its own: the flush before a cleaning, the
checkpoints, the replacement of segments.
"""

import errno
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from penstock.core.clock import Clock
from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.cleaner.checkpoints import CleanerCheckpoints
from penstock.storage.cleaner.cleaning_task import CleaningPlan, CleaningTask
from penstock.storage.cleaner.planning import LogToClean, by_dirty_ratio, durable_part, log_to_clean
from penstock.storage.cleaner.steps import CheckpointStep, CleanerTask, FlushStep, SwapStep
from penstock.storage.cleaner.throttle import CleanerThrottle
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

_TRANSIENT_ERRORS = {
    errno.ENOSPC: "free space in {directory}, or lower segment.bytes of the topic",
    errno.EDQUOT: "raise the quota of {directory}, or lower segment.bytes of the topic",
    errno.ENOMEM: "lower log.cleaner.dedupe.buffer.size",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (fs.file-max)",
}
"""Errors that do not mean that the disk has failed, with the remedy for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """The settings: `threads` is the broker setting `log.cleaner.threads`, and so on."""

    enable: bool = True
    threads: int = 1
    """How many cleanings may run at the same time; they share the memory and the I/O rate."""
    dedupe_buffer_size: int = 128 * 1024 * 1024
    io_buffer_size: int = 512 * 1024
    io_buffer_load_factor: float = 0.9
    """How full the dedupe buffer may become. The name is Kafka's."""
    io_max_bytes_per_second: float = inf
    backoff_ms: int = 15_000


DEFAULT_SETTINGS = CleanerSettings()


class LogCleaner:
    """Cleans the log with the largest dirty ratio, and maintains `cleaner-offset-checkpoint`.

    An error in one log makes that log `uncleanable` until the next start of the broker.
    """

    def __init__(
        self,
        manager: LogManager,
        clock: Clock,
        settings: CleanerSettings = DEFAULT_SETTINGS,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self.logs_cleaned = 0
        """How many cleanings were completed."""
        self._manager = manager
        self._clock = clock
        self._sleep = sleep
        self._throttle = CleanerThrottle(settings.io_max_bytes_per_second, clock)
        self._checkpoints = CleanerCheckpoints(manager.disk)
        self._running: dict[TopicPartition, CleanerTask] = {}
        self._paused: Counter[TopicPartition] = Counter()
        self._uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        self._retry_at_ms: dict[TopicPartition, int] = {}
        self._closed = not settings.enable
        self.hanging_dirs: set[LogDir] = set()
        """Directories in which a cleaning makes no progress: no other is begun there, and those
        that run there do not keep others from being begun."""
        manager.listeners.append(self)

    @property
    def settings(self) -> CleanerSettings:
        """May be changed; a running cleaning keeps its memory, but not its I/O rate."""
        return self._settings

    @settings.setter
    def settings(self, settings: CleanerSettings) -> None:
        self._settings = settings
        self._throttle.bytes_per_second = settings.io_max_bytes_per_second

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The partitions that are no longer cleaned, with the reasons."""
        return {partition: reason for partition, (_, reason) in self._uncleanable.items()}

    def first_dirty_offset(self, partition: TopicPartition) -> int | None:
        """Returns the first offset that was not cleaned; None if the log never was cleaned."""
        for log_dir, log in self._logs():
            if log.partition == partition:
                return self._checkpoints.get(log_dir, log)
        return None

    # --- choice of a log

    def begin(self) -> CleanerTask | None:
        """Returns the next task; None if no log is due or enough cleanings are running."""
        if self._closed or self._progressing >= self.settings.threads:
            return None
        self._forget_deleted()
        for candidate in by_dirty_ratio(self._candidates()):
            task = self._start(candidate)
            if task is not None:
                self._running[task.partition] = task
                return task
        return self._write_stale_checkpoint()

    @property
    def _progressing(self) -> int:
        hanging_paths = {log_dir.path for log_dir in self.hanging_dirs}
        return sum(
            task.log.directory.rpartition("/")[0] not in hanging_paths
            for task in self._running.values()
        )

    def _write_stale_checkpoint(self) -> CleanerTask | None:
        """Returns a task that corrects a checkpoint, if one is outdated."""
        for log_dir, log in self._logs():
            if log.partition not in self._running and log_dir not in self.hanging_dirs:
                checkpoint = self._checkpoints.begin_write(log_dir)
                if checkpoint is not None:
                    task = CheckpointStep(log, log_dir, checkpoint, lambda: None)
                    self._running[log.partition] = task
                    return task
        return None

    def _logs(self) -> Iterator[tuple[LogDir, Log]]:
        for log_dir in self._manager.online_dirs:
            for log in log_dir.logs.values():
                yield log_dir, log

    def _logs_of(self, partition: TopicPartition) -> Iterator[tuple[LogDir, Log]]:
        for log_dir in self._manager.online_dirs:
            log = log_dir.logs.get(partition)
            if log is not None:
                yield log_dir, log

    def log_dir_of(self, log: Log) -> LogDir | None:
        """Returns the log directory of a log; None if the manager does not have it any more."""
        for log_dir, current_log in self._logs_of(log.partition):
            if current_log is log:
                return log_dir
        return None

    def _can_clean(self, log: Log) -> bool:
        partition = log.partition
        return (
            log.config.compact
            and log.failure is None
            and partition not in self._running
            and partition not in self._paused
            and partition not in self._uncleanable
            and self._retry_at_ms.get(partition, 0) <= self._clock.monotonic_ms()
        )

    def _candidates(self) -> Iterator[LogToClean]:
        for log_dir, log in list(self._logs()):
            if self._can_clean(log) and log_dir not in self.hanging_dirs:
                candidate = self._measure(log_dir, log)
                if candidate is not None:
                    yield candidate

    def _measure(self, log_dir: LogDir, log: Log) -> LogToClean | None:
        """Returns the cleanable range of a log; None if it cannot be determined."""
        try:
            checkpoint = self._checkpoints.get(log_dir, log)
            candidate = log_to_clean(log, checkpoint, self._clock.now_ms())
        except OSError as error:
            log_dir.fail(error)
            return None
        except Exception as error:  # noqa: BLE001 - one log must not keep others from being cleaned
            self._mark_uncleanable(log, error)
            return None
        if checkpoint is not None and candidate.first_dirty_offset != checkpoint:
            self._checkpoints.set(log_dir, log, candidate.first_dirty_offset)
        return candidate

    def _start(self, candidate: LogToClean) -> CleanerTask | None:
        log = candidate.log
        log_dir = self.log_dir_of(log)
        if log_dir is None:
            return None
        try:
            # Segments below the log start offset are deleted instead of cleaned.
            deletions = delete_old_segments(log)
        except KafkaStorageError:
            return None
        if deletions:
            measured = self._measure(log_dir, log)
            if measured is None or not measured.is_due:
                return None
            candidate = measured
        if candidate.first_uncleanable_offset > log.recovery_point:
            flush = log.begin_flush()
            if flush is not None:
                return FlushStep(log, flush)
        return self._plan(log_dir, candidate)

    def _plan(self, log_dir: LogDir, candidate: LogToClean) -> CleanerTask | None:
        log = candidate.log
        recovery_point = log.recovery_point
        if not durable_part(candidate, recovery_point, self._clock.now_ms()).is_due:
            return None
        # Recovery must not take the gaps that a cleaning leaves for lost records: below the stored
        # recovery point it does not.
        checkpoint = log_dir.begin_checkpoint()
        if checkpoint is None:
            return None
        return CheckpointStep(
            log, log_dir, checkpoint, lambda: self._clean(log_dir, log, recovery_point)
        )

    def _clean(self, log_dir: LogDir, log: Log, recovery_point: int) -> CleaningTask | None:
        """Returns the cleaning of a log, up to the recovery point that has been stored."""
        if self._is_stopped(log):
            return None
        candidate = self._measure(log_dir, log)
        if candidate is None:
            return None
        candidate = durable_part(candidate, recovery_point, self._clock.now_ms())
        if not candidate.is_due:
            return None
        try:
            plan = CleaningPlan.of(candidate, self._clock.now_ms())
        except OSError as error:
            log_dir.fail(error)
            return None
        return CleaningTask(
            plan,
            map_memory=self.settings.dedupe_buffer_size // self.settings.threads,
            load_factor=self.settings.io_buffer_load_factor,
            io_buffer=self.settings.io_buffer_size // self.settings.threads,
            throttle=self._throttle,
            sleep=self._sleep,
        )

    # --- results of tasks

    def finish(self, task: CleanerTask) -> CleanerTask | None:
        """Handles a task after `task.run`, on the event loop; returns the next task to run."""
        next_task = self._finish(task)
        if next_task is None:
            self._running.pop(task.partition, None)
        else:
            self._running[task.partition] = next_task
        return next_task

    def abandon(self, task: CleanerTask, error: Exception) -> None:
        """Ends a cleaning whose task has raised; the log is not cleaned any more."""
        self._running.pop(task.partition, None)
        log = self._manager.get(task.partition)
        if log is not None:
            self._mark_uncleanable(log, error)

    def _finish(self, task: CleanerTask) -> CleanerTask | None:
        match task:
            case FlushStep():
                return self._finish_flush(task)
            case CheckpointStep():
                return self._finish_checkpoint(task)
            case SwapStep():
                return self._advance_swap(task)
            case CleaningTask():
                return self._finish_cleaning(task)

    def _finish_flush(self, task: FlushStep) -> CleanerTask | None:
        log = task.log
        try:
            log.finish_flush(task.flush, task.error)
        except KafkaStorageError:
            return None
        log_dir = self.log_dir_of(log)
        if log_dir is None or self._is_stopped(log):
            return None
        candidate = self._measure(log_dir, log)
        return None if candidate is None else self._plan(log_dir, candidate)

    def _is_stopped(self, log: Log) -> bool:
        return self._closed or log.partition in self._paused or log.failure is not None

    def _finish_checkpoint(self, task: CheckpointStep) -> CleanerTask | None:
        if task.checkpoint.error is not None:
            task.log_dir.fail(task.checkpoint.error)
            return None
        return task.then() if self.log_dir_of(task.log) is task.log_dir else None

    def _finish_cleaning(self, task: CleaningTask) -> CleanerTask | None:
        log_dir = self.log_dir_of(task.plan.log)
        is_stopped = self._closed or task.is_cancelled
        if log_dir is None or is_stopped or not task.plan.is_current(task.next_base_offset):
            task.discard()
            if log_dir is not None and task.removal_error is not None:
                log_dir.fail(task.removal_error)
            return None
        if task.removal_error is not None:
            log_dir.fail(task.removal_error)
            return None
        if task.error is not None:
            self._handle_error(log_dir, task.plan.log, task.error)
            return None
        if task.replacement is not None:
            return self._advance_swap(SwapStep(task, task.replacement))
        return self._next_step(log_dir, task)

    def _advance_swap(self, swap: SwapStep) -> CleanerTask | None:
        """Continues a replacement, to its end even if the cleaning is cancelled."""
        task = swap.task
        try:
            if not swap.operation.advance():
                return swap
        except KafkaStorageError:
            # The log has logged it and is offline; the next start completes or reverts the swap.
            new = swap.replacement.new
            if task.plan.log.local.segments.floor(new.base_offset) is not new:
                new.close_handlers()
            return None
        task.replacement = None
        task.next_base_offset = swap.replacement.end_offset
        log_dir = self.log_dir_of(task.plan.log)
        if log_dir is None or self._closed or task.is_cancelled:
            return None
        return self._next_step(log_dir, task)

    def _next_step(self, log_dir: LogDir, task: CleaningTask) -> CleanerTask | None:
        if not task.is_done:
            return task
        log = task.plan.log
        self._checkpoints.set(log_dir, log, task.end_offset)
        checkpoint = self._checkpoints.begin_write(log_dir)
        assert checkpoint is not None, "it has just changed"
        return CheckpointStep(log, log_dir, checkpoint, lambda: self._complete(task))

    def _complete(self, task: CleaningTask) -> None:
        self.logs_cleaned += 1
        self._log_statistics(task)

    def _handle_error(self, log_dir: LogDir, log: Log, error: Exception) -> None:
        remedy = _TRANSIENT_ERRORS.get(error.errno or 0) if isinstance(error, OSError) else None
        if remedy is not None:
            wait_ms = self.settings.backoff_ms
            self._retry_at_ms[log.partition] = self._clock.monotonic_ms() + wait_ms
            logger.warning(
                "%s could not be compacted: %s. No records are lost; %s. The next attempt is in "
                "%d s",
                log.partition,
                error,
                remedy.format(directory=log_dir.path),
                wait_ms // 1000,
            )
        elif isinstance(error, OSError):
            log_dir.fail(error)
        else:
            self._mark_uncleanable(log, error)

    def _mark_uncleanable(self, log: Log, error: Exception) -> None:
        reason = error.message if isinstance(error, KafkaError) else repr(error)
        self._uncleanable[log.partition] = (log, reason)
        logger.error(
            "%s is not compacted any more: %s. Its records stay readable, but %s grows. "
            "Look at its segments with `penstock dump-log`; if a replica is whole, delete the "
            "directory while the broker is stopped, so that it is copied again. The next "
            "start of the "
            "broker tries again",
            log.partition,
            reason,
            log.directory,
        )

    def _log_statistics(self, task: CleaningTask) -> None:
        stats = task.stats
        logger.info(
            "%s: cleaned offsets %d to %d: %d records with %d bytes became %d with %d; "
            "%.1f %% of the dedupe buffer in use",
            task.partition,
            task.plan.first_dirty_offset,
            task.end_offset,
            stats.messages_read,
            stats.bytes_read,
            stats.messages_written,
            stats.bytes_written,
            100 * task.map_utilization,
        )
        if stats.invalid_messages:
            logger.warning(
                "%s: removed %d records without a key; a topic with cleanup.policy=compact cannot "
                "keep them",
                task.partition,
                stats.invalid_messages,
            )

    # --- changes of logs (LogListener)

    def pause(self, partition: TopicPartition) -> None:
        """Cancels the cleaning of a partition and prevents further ones until `resume`."""
        self._paused[partition] += 1
        self._cancel(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Reverts one `pause`."""
        if partition not in self._paused:
            raise ValueError(f"the cleaning of {partition} is not paused")
        self._paused[partition] -= 1
        if not self._paused[partition]:
            del self._paused[partition]

    def on_truncated(self, partition: TopicPartition, offset: int) -> None:
        """Lowers the checkpoint, before anything is appended to the log.

        Otherwise a new tombstone could be taken for one that is no longer needed.
        """
        for log_dir, log in self._logs_of(partition):
            self._checkpoints.lower(log_dir, log, offset)

    def on_deleted(self, partition: TopicPartition) -> None:
        self._cancel(partition)
        for log_dir, log in self._logs_of(partition):
            self._checkpoints.forget(log_dir, log)

    def on_move_started(self, partition: TopicPartition) -> None:
        self.pause(partition)
        for log_dir, log in self._logs_of(partition):
            # Loads the checkpoint now: it ignores logs that no longer exist when it is read.
            self._measure(log_dir, log)

    def on_move_ended(self, partition: TopicPartition) -> None:
        if partition in self._paused:
            self.resume(partition)

    def on_moved(self, source: LogDir, target: LogDir, old: Log, new: Log) -> None:
        offset = self._checkpoints.get(source, old)
        if offset is not None:
            self._checkpoints.set(target, new, offset)
            self._checkpoints.forget(source, old)

    def begin_checkpoint(self, log_dir: LogDir) -> FileWrite | None:
        return self._checkpoints.begin_write(log_dir)

    def close(self) -> None:
        """Starts no more cleanings and cancels the running ones; `finish` may still be called."""
        self._closed = True
        if self in self._manager.listeners:
            self._manager.listeners.remove(self)
        for partition in self._running:
            self._cancel(partition)

    def _cancel(self, partition: TopicPartition) -> None:
        task: CleanerTask | None = self._running.get(partition)
        if isinstance(task, SwapStep):
            task = task.task
        if isinstance(task, CleaningTask):
            task.is_cancelled = True

    def _forget_deleted(self) -> None:
        for partition, (log, _) in list(self._uncleanable.items()):
            if self._manager.get(partition) is not log:
                del self._uncleanable[partition]

    def clean(self) -> int:
        """Cleans all logs that are due, on this thread; returns how many."""
        cleaned_before = self.logs_cleaned
        task = self.begin()
        while task is not None:
            task.run()
            task = self.finish(task) or self.begin()
        return self.logs_cleaned - cleaned_before
