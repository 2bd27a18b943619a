"""Removal of the deleted files of a log directory, on a worker thread.

`LogDir.begin_removal` returns the files whose delay has passed, a worker thread runs the task, and
`LogDir.finish_removal` handles its error.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.manager.log_slices import LogSlices
from penstock.storage.segment.log_segment import LogSegment


class DeletedDirectory(NamedTuple):
    """The renamed directory of a deleted partition, and the log in it."""

    path: str
    log: Log | None


class RemovalTask:
    """Removes the files of one log directory whose `file.delete.delay.ms` has passed."""

    def __init__(
        self, disk: Disk, directories: Sequence[DeletedDirectory], segments: Sequence[LogSegment]
    ) -> None:
        self.directories = list(directories)
        """Those that were not removed, after `run` has failed."""
        self.segments = list(segments)
        self.error: Exception | None = None
        self._disk = disk

    def run(self) -> None:
        """Removes the files, on any thread; an exception is kept in `error`."""
        try:
            while self.segments:
                self.segments[-1].delete()
                self.segments.pop()
            while self.directories:
                directory = self.directories[-1]
                if directory.log is not None:
                    directory.log.local.close_handlers()
                self._disk.remove_directory(directory.path)
                self.directories.pop()
        except Exception as error:  # noqa: BLE001 - it takes the log directory offline
            self.error = error


class _DelayedRemoval(NamedTuple):
    remove_at_ms: int
    directory: DeletedDirectory


class FileRemovals:
    """The files of a log directory that are deleted and not removed yet."""

    def __init__(self, disk: Disk, list_logs: Callable[[], Iterable[Log]]) -> None:
        self._disk = disk
        self._log_slices = LogSlices(list_logs)
        self._directories: list[_DelayedRemoval] = []
        self._segments: list[LogSegment] = []
        """Segments that an earlier task could not remove."""

    def add_directory(self, directory: DeletedDirectory, remove_at_ms: int) -> None:
        self._directories.append(_DelayedRemoval(remove_at_ms, directory))

    def begin(self, now_ms: int) -> RemovalTask | None:
        """Returns the removal of what is due; None if nothing is."""
        due = [removal for removal in self._directories if removal.remove_at_ms <= now_ms]
        if due:
            self._directories = [
                removal for removal in self._directories if removal.remove_at_ms > now_ms
            ]
        segments, self._segments = self._segments, []
        for log in self._log_slices.take_endlessly():
            segments += log.local.take_removable_segments(now_ms)
        if not due and not segments:
            return None
        return RemovalTask(self._disk, [removal.directory for removal in due], segments)

    def add_unremoved(self, task: RemovalTask, now_ms: int) -> None:
        """Has the next task remove what a failed one has left."""
        self._segments += task.segments
        for directory in task.directories:
            self.add_directory(directory, now_ms)

    def close_logs(self) -> None:
        """Closes the files of logs whose directory is not removed yet."""
        for removal in self._directories:
            if removal.directory.log is not None:
                removal.directory.log.local.close_handlers()
