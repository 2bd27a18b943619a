"""Chores that wait for the disk, in a form that another thread can run.

`LogManager.tick` does them itself if nobody else has: a host that must not wait asks for them
first. Both have `run` for any thread, and are then given back to the manager.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.storage.disk import Disk
from penstock.storage.log import Log
from penstock.storage.segment import Segment

NEXT_SUFFIX = ".next"
"""A checkpoint that is durable and about to take the place of the one before."""


class CheckpointTask:
    """The checkpoints of one folder of `log.dirs`, as they were when it was begun."""

    def __init__(self, disk: Disk, files: Mapping[str, bytes], serial: int) -> None:
        self.files = files
        """What is written, by path."""
        self.serial = serial
        self.error: OSError | None = None
        self._disk = disk

    def run(self) -> None:
        """Writes the files beside the old ones."""
        try:
            for path, data in self.files.items():
                file = self._disk.open(path + NEXT_SUFFIX, create=True)
                try:
                    file.truncate(0)
                    file.write_at(data, 0)
                    file.sync()
                finally:
                    file.close()
        except OSError as error:
            self.error = error


class CondemnedFolder(NamedTuple):
    """A partition's folder that was deleted, and the log in it."""

    path: str
    log: Log | None


class RemovalTask:
    """Files of one folder of `log.dirs` whose `file.delete.delay.ms` has passed."""

    def __init__(
        self, disk: Disk, folders: Sequence[CondemnedFolder], segments: Sequence[Segment]
    ) -> None:
        self.folders = folders
        self.segments = segments
        self.error: OSError | None = None
        self._disk = disk

    def run(self) -> None:
        """Removes them for good."""
        try:
            for segment in self.segments:
                segment.delete()
            for folder in self.folders:
                if folder.log is not None:
                    folder.log.local.close_handlers()
                self._disk.remove_folder(folder.path)
        except OSError as error:
            self.error = error
