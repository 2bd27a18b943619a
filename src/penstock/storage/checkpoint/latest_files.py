"""Small files that several threads may be told to write: what was taken last is what stays."""

import threading
from collections.abc import Mapping
from pathlib import Path

from penstock.storage.disk import Disk


class FileWrite:
    """Contents that were taken at some moment, to be made durable on any thread."""

    def __init__(self, owner: "LatestFiles", serial: int, files: Mapping[str, bytes]) -> None:
        self.files = files
        """What is written, by path."""
        self.error: OSError | None = None
        self._owner = owner
        self._serial = serial

    def write(self) -> None:
        """Returns when these contents, or such that were taken later, are durable."""
        self._owner.write(self._serial, self.files)

    def run(self) -> None:
        """`write`, with what went wrong in `error`."""
        try:
            self.write()
        except OSError as error:
            self.error = error


class LatestFiles:
    """Files that are always written together.

    `take` is for the logs' own thread. The lock is there for threads that write at the same
    time: they come one after the other, and one that was overtaken has nothing left to do.
    """

    def __init__(self, disk: Disk) -> None:
        self.taken = 0
        """How often contents were taken."""
        self._disk = disk
        self._written = 0
        self._lock = threading.Lock()

    @property
    def is_durable(self) -> bool:
        """Whether what was taken last is durable."""
        return self._written == self.taken

    def take(self, files: Mapping[str, bytes]) -> FileWrite:
        """What the files shall be from now on, by path."""
        self.taken += 1
        return FileWrite(self, self.taken, files)

    def write(self, serial: int, files: Mapping[str, bytes]) -> None:
        """See `FileWrite.write`. A crash leaves each file as it was, or as it shall be."""
        with self._lock:
            if serial <= self._written:
                return
            for path, data in files.items():
                file = self._disk.open(_temporary(path), create=True)
                try:
                    file.truncate(0)
                    file.write_at(data, 0)
                    file.sync()
                finally:
                    file.close()
            for path in files:
                self._disk.rename(_temporary(path), path)
            for directory in sorted({str(Path(path).parent) for path in files}):
                self._disk.sync_directory(directory)
            self._written = serial


def _temporary(path: str) -> str:
    return path + ".tmp"
