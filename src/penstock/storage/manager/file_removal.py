"""Removal of deleted files on a worker thread.

`LogDir.begin_removal` returns the files whose delay has passed, a worker thread runs the task, and
`LogDir.finish_removal` handles its error.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
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
