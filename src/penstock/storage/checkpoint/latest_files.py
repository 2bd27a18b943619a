"""Small files that several threads may write at the same time: the latest content wins."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.storage.disk import Disk, write_file


class FileWrite:
    """The content of some files at one moment, to be written on any thread."""

    def __init__(
        self, owner: "LatestFiles", serial: int, files: Mapping[str, bytes | Callable[[], bytes]]
    ) -> None:
        self._files = files
        self.error: Exception | None = None
        self._owner = owner
        self._serial = serial

    def write(self) -> None:
        """Returns when this content, or a later one, is durable."""
        self._owner.write(self._serial, self._files)

    def run(self) -> None:
        """Calls `write` and keeps its exception in `error`."""
        try:
            self.write()
        except Exception as error:  # noqa: BLE001 - it takes the log directory offline
            self.error = error


class LatestFiles:
    """Files that are always written together.

    `begin_write` is called on the event loop. The lock serializes threads that write at the same
    time; a thread whose content is outdated by then writes nothing.
    """

    def __init__(self, disk: Disk) -> None:
        self._last_serial = 0
        self._disk = disk
        self._written_serial = 0
        self._lock = threading.Lock()

    @property
    def is_durable(self) -> bool:
        """Whether the latest content is durable."""
        return self._written_serial == self._last_serial

    def begin_write(self, files: Mapping[str, bytes | Callable[[], bytes]]) -> FileWrite:
        """Returns the write of new content for the files, by path.

        The content may be a function, to be called by the thread that writes it.
        """
        self._last_serial += 1
        return FileWrite(self, self._last_serial, files)

    def write(self, serial: int, files: Mapping[str, bytes | Callable[[], bytes]]) -> None:
        """See `FileWrite.write`. A crash leaves each file with its old or its new content."""
        with self._lock:
            if serial <= self._written_serial:
                return
            for path, data in files.items():
                write_file(self._disk, _temporary(path), data() if callable(data) else data)
            for path in files:
                self._disk.rename(_temporary(path), path)
            for directory in sorted({str(Path(path).parent) for path in files}):
                self._disk.sync_directory(directory)
            self._written_serial = serial


def _temporary(path: str) -> str:
    return path + ".tmp"
