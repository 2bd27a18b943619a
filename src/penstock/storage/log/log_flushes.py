"""The flushes of a log: what each makes durable, when the next is due, what a failed one means."""

from collections.abc import Callable
from functools import partial

from penstock.core.clock import Clock
from penstock.storage.checkpoint.leader_epoch_cache import LeaderEpochCache
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.log.failure_guard import FailureGuard
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.local_log import LocalLog
from penstock.storage.producer.state_manager import ProducerStateManager


class LogFlushes:
    """Flushes segments, leader epochs and producer snapshots of one log, one flush at a time."""

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        guard: FailureGuard,
        clock: Clock,
    ) -> None:
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._guard = guard
        self._clock = clock
        self._last_flush_ms = clock.monotonic_ms()
        self._unsynced_snapshots: list[int] = []

    def take_snapshot(self) -> None:
        """Writes the producer state; the next flush makes the file durable."""
        if self._producers.take_snapshot(sync=False) is not None:
            self._unsynced_snapshots.append(self._producers.map_end_offset)

    def begin(self, *, with_indexes: bool = False) -> FlushTask | None:
        """Returns a flush, to be run on any thread and then passed to `finish`.

        Returns None if everything is durable, another flush is running, or the files are locked.
        Raises the log's failure: after a failed flush the next one would succeed, because the
        kernel reports an error once, although the data is not on the disk.
        """
        self._guard.require_writable()
        return self._task(with_indexes=with_indexes) if self._local.can_flush else None

    def _task(self, *, with_indexes: bool = False) -> FlushTask | None:
        task = self._local.begin_flush(with_indexes=with_indexes)
        if task is not None:
            if self._epochs.is_stale:
                # Before the recovery point moves: recovery only looks for epochs above it.
                task.has_epochs = True
                task.additional_syncs.append(self._epochs.begin_write().write)
            task.snapshots = self._unsynced_snapshots
            for offset in task.snapshots:
                task.additional_syncs.append(partial(self._producers.flush_snapshot, offset))
            self._unsynced_snapshots = []
        return task

    def finish(
        self, task: FlushTask, error: Exception | None, hide_unacknowledged: Callable[[], None]
    ) -> None:
        """Advances the recovery point after a flush; a failed one stops the log.

        `hide_unacknowledged` is called before the log stops for lack of room.

        A flush that could not open its files, or write the epochs, is refused and may be repeated.
        Raises the log's failure, also if the log failed while the flush was running: another flush
        may have received the error that concerns this one.
        """
        failure = self._guard.failure
        self._local.finish_flush(task, succeeded=error is None and failure is None)
        if error is not None:
            if isinstance(error, OSError) and task.is_repeatable_after(error):
                self._epochs.is_stale = self._epochs.is_stale or task.has_epochs
                self._unsynced_snapshots[:0] = task.snapshots
                self._guard.refuse(error)
            if is_lack_of_room(error):
                hide_unacknowledged()
            self._guard.fail(error)
        if failure is not None:
            raise failure
        self._last_flush_ms = self._clock.monotonic_ms()

    def run(self, hide_unacknowledged: Callable[[], None]) -> None:
        """Makes everything that was appended durable, on this thread; see `finish`."""
        self._guard.require_writable()
        task = self._task()
        if task is not None:
            try:
                task.run()
            except Exception as error:  # noqa: BLE001 - raised as the log's failure
                self.finish(task, error, hide_unacknowledged)
            self.finish(task, None, hide_unacknowledged)

    @property
    def is_due(self) -> bool:
        """Whether `flush.ms` or `flush.messages` requires a flush, or a sealed segment waits."""
        local = self._local
        if not local.unflushed:
            return False
        return (
            local.has_unflushed_sealed_segment
            or local.unflushed >= local.config.flush_messages
            or self._clock.monotonic_ms() - self._last_flush_ms >= local.config.flush_ms
        )
