"""Removal of deleted files, in a form that another thread can run.

`LogManager.tick` does it itself if nobody else has: a host that must not wait asks for it first,
`run`s it on any thread, and gives it back to the directory.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.segment.log_segment import LogSegment


class DeletedDirectory(NamedTuple):
    """A partition's directory that was deleted, and the log in it."""

    path: str
    log: Log | None


class RemovalTask:
    """Files of one directory of `log.dirs` whose `file.delete.delay.ms` has passed."""

    def __init__(
        self, disk: Disk, directories: Sequence[DeletedDirectory], segments: Sequence[LogSegment]
    ) -> None:
        self.directories = directories
        self.segments = segments
        self.error: OSError | None = None
        self._disk = disk

    def run(self) -> None:
        """Removes them for good."""
        try:
            for segment in self.segments:
                segment.delete()
            for directory in self.directories:
                if directory.log is not None:
                    directory.log.local.close_handlers()
                self._disk.remove_directory(directory.path)
        except OSError as error:
            self.error = error
