"""Compacts the logs of a broker, one after the other, off the event loop (S5).

The host asks `begin` for work on the logs' own thread, runs it on any other, and hands it back::

    task = cleaner.begin()                    # None: nothing to do for log.cleaner.backoff.ms
    while task is not None:
        await loop.run_in_executor(pool, task.run)
        task = cleaner.finish(task)

Between the two nothing is locked: the log goes on appending, rolling and deleting. `finish` takes
over what was made if the log still has the segments it was made from, and throws it away if not.
What waits for the disk is a step of its own, run as the others are: the flush before a cleaning,
the checkpoints, the replacement of segments.
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
from penstock.storage.cleaner.steps import CleanerTask, FlushStep, StoreStep, SwapStep
from penstock.storage.cleaner.throttle import CleanerThrottle
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager

_log = logging.getLogger(__name__)

_PASSING = {
    errno.ENOSPC: "free space in {directory}, or lower segment.bytes of the topic",
    errno.EDQUOT: "raise the quota of {directory}, or lower segment.bytes of the topic",
    errno.ENOMEM: "lower log.cleaner.dedupe.buffer.size",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (fs.file-max)",
}
"""Errors that do not mean that the disk has failed, and what to do about each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """Field `threads` is the broker setting `log.cleaner.threads`, and so on for each."""

    enable: bool = True
    threads: int = 1
    """How many cleanings may be under way; they share the memory and the rate."""
    dedupe_buffer_size: int = 128 * 1024 * 1024
    io_buffer_size: int = 512 * 1024
    io_buffer_load_factor: float = 0.9
    """How full the dedupe buffer may become; Kafka gave the setting this name."""
    io_max_bytes_per_second: float = inf
    backoff_ms: int = 15_000


DEFAULT_SETTINGS = CleanerSettings()


class LogCleaner:
    """Picks the filthiest log, has it cleaned, and keeps `cleaner-offset-checkpoint`.

    An error in one log makes that one `uncleanable` until the broker starts again, and no other.
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
        """How many cleanings went through to the end."""
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
        manager.watchers.append(self)

    @property
    def settings(self) -> CleanerSettings:
        """May be changed; a cleaning that is under way keeps its memory, but not its rate."""
        return self._settings

    @settings.setter
    def settings(self, settings: CleanerSettings) -> None:
        self._settings = settings
        self._throttle.bytes_per_second = settings.io_max_bytes_per_second

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The partitions that are not cleaned any more, and why."""
        return {partition: reason for partition, (_, reason) in self._uncleanable.items()}

    def first_dirty_offset(self, partition: TopicPartition) -> int | None:
        """How far a partition was cleaned; None where it never was."""
        for log_dir, log in self._logs():
            if log.partition == partition:
                return self._checkpoints.get(log_dir, log)
        return None

    # --- picking

    def begin(self) -> CleanerTask | None:
        """The next thing to run, None where nothing is due or enough is under way."""
        if self._closed or len(self._running) >= self.settings.threads:
            return None
        self._forget_deleted()
        for found in by_dirty_ratio(self._candidates()):
            task = self._start(found)
            if task is not None:
                self._running[task.partition] = task
                return task
        return self._store_stale()

    def _store_stale(self) -> CleanerTask | None:
        """Stores what was found to be wrong in a checkpoint, and is not stored with a cleaning."""
        for log_dir, log in self._logs():
            if log.partition not in self._running:
                file = self._checkpoints.begin_store(log_dir)
                if file is not None:
                    task = StoreStep(log, log_dir, file, lambda: None)
                    self._running[log.partition] = task
                    return task
        return None

    def _logs(self) -> Iterator[tuple[LogDir, Log]]:
        for log_dir in self._manager.live_dirs:
            for log in log_dir.logs.values():
                yield log_dir, log

    def _home_of(self, log: Log) -> LogDir | None:
        """The directory of a log that is still the manager's."""
        for log_dir, known in self._logs():
            if known is log:
                return log_dir
        return None

    def _may_clean(self, log: Log) -> bool:
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
            if self._may_clean(log):
                found = self._measure(log_dir, log)
                if found is not None:
                    yield found

    def _measure(self, log_dir: LogDir, log: Log) -> LogToClean | None:
        """What of the log can be cleaned; None where that cannot be found out."""
        try:
            checkpoint = self._checkpoints.get(log_dir, log)
            found = log_to_clean(log, checkpoint, self._clock.now_ms())
        except OSError as error:
            log_dir.fail(error)
            return None
        except KafkaError as error:
            self._give_up(log, error)
            return None
        if checkpoint is not None and found.first_dirty_offset != checkpoint:
            self._checkpoints.set(log_dir, log, found.first_dirty_offset)
        return found

    def _start(self, found: LogToClean) -> CleanerTask | None:
        log = found.log
        home = self._home_of(log)
        if home is None:
            return None
        try:
            # What lies below the log start offset need not be cleaned, it can go.
            deleted = delete_old_segments(log)
        except KafkaStorageError:
            return None
        if deleted:
            measured = self._measure(home, log)
            if measured is None or not measured.is_due:
                return None
            found = measured
        if found.first_uncleanable_offset > log.recovery_point:
            flush = log.begin_flush()
            if flush is not None:
                return FlushStep(log, flush)
        return self._plan(home, found)

    def _plan(self, home: LogDir, found: LogToClean) -> CleanerTask | None:
        log = found.log
        stored = log.recovery_point
        if not durable_part(found, stored, self._clock.now_ms()).is_due:
            return None
        # Recovery must not take the gaps that a cleaning leaves for lost records: it does not
        # below the recovery point that is on disk.
        checkpoint = home.begin_checkpoint()
        if checkpoint is None:
            return None
        return StoreStep(log, home, checkpoint, lambda: self._clean(home, log, stored))

    def _clean(self, home: LogDir, log: Log, stored: int) -> CleaningTask | None:
        """Starts over with a log, up to the recovery point that was stored meanwhile."""
        if self._closed or log.partition in self._paused or log.failure is not None:
            return None
        found = self._measure(home, log)
        if found is None:
            return None
        found = durable_part(found, stored, self._clock.now_ms())
        if not found.is_due:
            return None
        try:
            plan = CleaningPlan.of(found, self._clock.now_ms())
        except OSError as error:
            home.fail(error)
            return None
        return CleaningTask(
            plan,
            map_memory=self.settings.dedupe_buffer_size // self.settings.threads,
            load_factor=self.settings.io_buffer_load_factor,
            io_buffer=self.settings.io_buffer_size // self.settings.threads,
            throttle=self._throttle,
            sleep=self._sleep,
        )

    # --- taking over

    def finish(self, task: CleanerTask) -> CleanerTask | None:
        """To be called on the logs' thread after `task.run`; what it returns must be run too."""
        following = self._finish(task)
        if following is None:
            self._running.pop(task.partition, None)
        else:
            self._running[task.partition] = following
        return following

    def _finish(self, task: CleanerTask) -> CleanerTask | None:
        match task:
            case FlushStep():
                return self._finish_flush(task)
            case StoreStep():
                return self._finish_store(task)
            case SwapStep():
                return self._advance_swap(task)
            case CleaningTask():
                return self._finish_step(task)

    def _finish_flush(self, task: FlushStep) -> CleanerTask | None:
        log = task.log
        try:
            log.finish_flush(task.flush, task.error)
        except KafkaStorageError:
            return None
        home = self._home_of(log)
        if home is None or self._closed or log.partition in self._paused or log.failure is not None:
            return None
        found = self._measure(home, log)
        return None if found is None else self._plan(home, found)

    def _finish_store(self, task: StoreStep) -> CleanerTask | None:
        if task.file.error is not None:
            task.home.fail(task.file.error)
            return None
        return task.then() if self._home_of(task.log) is task.home else None

    def _finish_step(self, task: CleaningTask) -> CleanerTask | None:
        home = self._home_of(task.plan.log)
        wanted = not (self._closed or task.cancelled)
        if home is None or not wanted or not task.plan.is_current(task.next_base_offset):
            task.discard()
            if home is not None and task.leftover is not None:
                home.fail(task.leftover)
            return None
        if task.leftover is not None:
            home.fail(task.leftover)
            return None
        if task.error is not None:
            self._explain(home, task.plan.log, task.error)
            return None
        if task.replacement is not None:
            return self._advance_swap(SwapStep(task, task.replacement))
        return self._after_step(home, task)

    def _advance_swap(self, swap: SwapStep) -> CleanerTask | None:
        """Goes on with a replacement, to its end even if nothing more is to be cleaned."""
        task = swap.task
        try:
            if not swap.stages.advance():
                return swap
        except KafkaStorageError:
            # The log has said so and is offline; a start after that completes or undoes the swap.
            new = swap.replacement.new
            if task.plan.log.local.segments.floor(new.base_offset) is not new:
                new.close_handlers()
            return None
        task.replacement = None
        task.next_base_offset = swap.replacement.end_offset
        home = self._home_of(task.plan.log)
        if home is None or self._closed or task.cancelled:
            return None
        return self._after_step(home, task)

    def _after_step(self, home: LogDir, task: CleaningTask) -> CleanerTask | None:
        if not task.done:
            return task
        log = task.plan.log
        self._checkpoints.set(home, log, task.end_offset)
        file = self._checkpoints.begin_store(home)
        assert file is not None, "it has just changed"
        return StoreStep(log, home, file, lambda: self._done(task))

    def _done(self, task: CleaningTask) -> None:
        self.logs_cleaned += 1
        self._report(task)

    def _explain(self, home: LogDir, log: Log, error: Exception) -> None:
        remedy = _PASSING.get(error.errno or 0) if isinstance(error, OSError) else None
        if remedy is not None:
            wait_ms = self.settings.backoff_ms
            self._retry_at_ms[log.partition] = self._clock.monotonic_ms() + wait_ms
            _log.warning(
                "%s could not be compacted: %s. Nothing of it is harmed; %s. The next try is in "
                "%d s",
                log.partition,
                error,
                remedy.format(directory=home.path),
                wait_ms // 1000,
            )
        elif isinstance(error, OSError):
            home.fail(error)
        else:
            self._give_up(log, error)

    def _give_up(self, log: Log, error: Exception) -> None:
        reason = error.message if isinstance(error, KafkaError) else repr(error)
        self._uncleanable[log.partition] = (log, reason)
        _log.error(
            "%s is not compacted any more: %s. Its records stay readable, but %s grows. "
            "Look at its segments with `penstock dump-log`; if a replica is whole, delete the "
            "directory while the broker is stopped, so that it is copied again. The next "
            "start of the "
            "broker tries again",
            log.partition,
            reason,
            log.directory,
        )

    def _report(self, task: CleaningTask) -> None:
        stats = task.stats
        _log.info(
            "%s: cleaned offsets %d to %d: %d records and %d bytes became %d and %d; "
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
            _log.warning(
                "%s: dropped %d records without a key: a topic with cleanup.policy=compact keeps "
                "none of those",
                task.partition,
                stats.invalid_messages,
            )

    # --- what happens to logs meanwhile

    def pause(self, partition: TopicPartition) -> None:
        """Stops the cleaning of a partition, and keeps it from starting until `resume`."""
        self._paused[partition] += 1
        self._cancel(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Undoes one `pause`."""
        if partition not in self._paused:
            raise ValueError(f"the cleaning of {partition} is not paused")
        self._paused[partition] -= 1
        if not self._paused[partition]:
            del self._paused[partition]

    def truncated(self, partition: TopicPartition, offset: int) -> None:
        """The manager says so before anything is appended to the log.

        Otherwise a new tombstone could be taken for one that has done its work already.
        """
        for log_dir, log in self._logs():
            if log.partition == partition:
                self._checkpoints.lower(log_dir, log, offset)

    def deleted(self, partition: TopicPartition) -> None:
        """The manager says so before it deletes the log."""
        self._cancel(partition)
        for log_dir, log in self._logs():
            if log.partition == partition:
                self._checkpoints.forget(log_dir, log)

    def move_began(self, partition: TopicPartition) -> None:
        """The manager says so before it copies the log to another directory."""
        self.pause(partition)
        for log_dir, log in self._logs():
            if log.partition == partition:
                # What is in the file is lost on a log that is gone when it is read.
                self._measure(log_dir, log)

    def move_ended(self, partition: TopicPartition) -> None:
        """The manager says so when the copy is done, or given up."""
        if partition in self._paused:
            self.resume(partition)

    def moved(self, source: LogDir, target: LogDir, old: Log, new: Log) -> None:
        """The manager says so when the log is another one, in another directory."""
        offset = self._checkpoints.get(source, old)
        if offset is not None:
            self._checkpoints.set(target, new, offset)
            self._checkpoints.forget(source, old)

    def begin_store(self, log_dir: LogDir) -> FileWrite | None:
        """`cleaner-offset-checkpoint` of a directory, where that is not as it should be."""
        return self._checkpoints.begin_store(log_dir)

    def close(self) -> None:
        """Starts nothing more, and stops what is running; `finish` may still be called."""
        self._closed = True
        if self in self._manager.watchers:
            self._manager.watchers.remove(self)
        for partition in self._running:
            self._cancel(partition)

    def _cancel(self, partition: TopicPartition) -> None:
        task: CleanerTask | None = self._running.get(partition)
        if isinstance(task, SwapStep):
            task = task.task
        if isinstance(task, CleaningTask):
            task.cancelled = True

    def _forget_deleted(self) -> None:
        for partition, (log, _) in list(self._uncleanable.items()):
            if self._manager.get(partition) is not log:
                del self._uncleanable[partition]

    def clean(self) -> int:
        """Cleans all that is due, here and now; returns how many logs that were."""
        before = self.logs_cleaned
        task = self.begin()
        while task is not None:
            task.run()
            task = self.finish(task) or self.begin()
        return self.logs_cleaned - before
