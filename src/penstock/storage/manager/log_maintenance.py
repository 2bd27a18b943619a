"""Periodic maintenance of the logs of a broker: retention, flushes, checkpoints, removal of files.

Each task looks at some of the logs at a time, so that no call takes long however many there are.
`broker/replica/background_tasks.py` calls them and runs on threads what they return.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.core.clock import Clock
from penstock.core.errors import KafkaStorageError
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.disk import Disk
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.manager.file_removal import RemovalTask
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_discovery import partition_of_directory
from penstock.storage.manager.log_slices import LogSlices

logger = logging.getLogger(__name__)

_MAX_FLUSHES_TO_CLOSE = 200
"""How many logs are flushed at a time so that their files can be closed."""


class MaintenanceIntervals(NamedTuple):
    """How often each maintenance task runs, under the names of the broker settings."""

    log_retention_check_interval_ms: int = 5 * 60 * 1000
    log_flush_offset_checkpoint_interval_ms: int = 60 * 1000
    producer_id_expiration_check_interval_ms: int = 10 * 60 * 1000
    replica_high_watermark_checkpoint_interval_ms: int = 5000


class LogMaintenance:
    """The maintenance tasks of the logs in `dirs`, and when each of them is due."""

    def __init__(
        self, disk: Disk, dirs: Sequence[LogDir], clock: Clock, intervals: MaintenanceIntervals
    ) -> None:
        self._disk = disk
        self._dirs = dirs
        self._clock = clock
        self._intervals = intervals
        self.has_replicas = False
        """Whether partitions have replicas elsewhere. If not, high watermarks are not needed."""
        self._flush_slices = LogSlices(self._logs)
        self._retention_slices = LogSlices(self._logs)
        self._expiration_slices = LogSlices(self._logs)
        now = clock.monotonic_ms()
        self._next_retention_ms = now + intervals.log_retention_check_interval_ms
        self._last_checkpoint_ms = now
        self._next_expiration_ms = now + intervals.producer_id_expiration_check_interval_ms

    def _logs(self) -> Iterator[Log]:
        for log_dir in self._dirs:
            yield from log_dir.logs.values()

    def _online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self._dirs if log_dir.is_online]

    def apply_retention(self) -> None:
        """Applies retention and expires producers, if due. Does not block on the disk.

        Each call continues with some of the logs, until it has come to all of them.
        """
        now = self._clock.monotonic_ms()
        if now >= self._next_retention_ms:
            self._next_retention_ms = now + self._intervals.log_retention_check_interval_ms
            self._retention_slices.begin()
        if now >= self._next_expiration_ms:
            self._next_expiration_ms = (
                now + self._intervals.producer_id_expiration_check_interval_ms
            )
            self._expiration_slices.begin()
        _for_each(self._retention_slices.take(), lambda log: delete_old_segments(log))
        wall_ms = self._clock.now_ms()
        _for_each(self._expiration_slices.take(), lambda log: log.producers.remove_expired(wall_ms))

    def due_flushes(self) -> list[tuple[Log, FlushTask]]:
        """Returns the flushes that are due, to be run on a worker thread.

        Each call looks at some of the logs, and the next one continues with the others.
        Pass each to `Log.finish_flush` afterwards.
        """
        tasks: list[tuple[Log, FlushTask]] = []
        for log in self._flush_slices.take_endlessly():
            if log.failure is None and log.is_flush_due:
                task = log.begin_flush()
                if task is not None:
                    tasks.append((log, task))
        if self._disk.file_cache.needs_flush:
            tasks += self._flushes_to_close_files()
        return tasks

    def _flushes_to_close_files(self) -> list[tuple[Log, FlushTask]]:
        """Returns flushes of logs whose files could be closed if they were synced."""
        tasks: list[tuple[Log, FlushTask]] = []
        for directory in self._disk.file_cache.take_unsynced_directories(_MAX_FLUSHES_TO_CLOSE):
            path, _, name = directory.rpartition("/")
            partition = partition_of_directory(name)
            for log_dir in self._online_dirs():
                log = log_dir.logs.get(partition) if partition and log_dir.path == path else None
                if log is not None and log.failure is None:
                    task = log.begin_flush(with_indexes=True)
                    if task is not None:
                        tasks.append((log, task))
        return tasks

    def begin_checkpoints(
        self, busy_dirs: Collection[LogDir] = ()
    ) -> list[tuple[LogDir, FileWrite]]:
        """Returns the checkpoints that are due, except of `busy_dirs`, for a worker thread.

        Pass each to `LogDir.finish_checkpoint` afterwards.
        """
        now = self._clock.monotonic_ms()
        intervals = self._intervals
        interval_ms = intervals.log_flush_offset_checkpoint_interval_ms
        if self.has_replicas:
            # All checkpoints of a directory are written together.
            interval_ms = min(interval_ms, intervals.replica_high_watermark_checkpoint_interval_ms)
        if now < self._last_checkpoint_ms + interval_ms:
            return []
        self._last_checkpoint_ms = now
        tasks = [
            (log_dir, log_dir.begin_checkpoint())
            for log_dir in self._online_dirs()
            if log_dir not in busy_dirs
        ]
        return [(log_dir, task) for log_dir, task in tasks if task is not None]

    def begin_removals(
        self, busy_dirs: Collection[LogDir] = ()
    ) -> list[tuple[LogDir, RemovalTask]]:
        """Returns the removals of deleted files that are due, except of `busy_dirs`, for a thread.

        Pass each to `LogDir.finish_removal` afterwards.
        """
        tasks = [
            (log_dir, log_dir.begin_removal())
            for log_dir in self._online_dirs()
            if log_dir not in busy_dirs
        ]
        return [(log_dir, task) for log_dir, task in tasks if task is not None]


def _for_each(logs: Iterable[Log], action: Callable[[Log], object]) -> None:
    for log in logs:
        if log.failure is None:
            try:
                action(log)
            except KafkaStorageError:
                # The log has logged it; others continue.
                continue
            except Exception:
                logger.exception("the maintenance of %s failed; others continue", log.partition)
