"""A file of lines that is rotated by its size, so that it never takes more than its share."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_MODE: Final = 0o600
"""Only the user of the broker reads who did what."""


class RotatingFile:
    """Appends lines to `path`; `path.1` is the previous file, `path.2` the one before.

    Every method raises OSError; the next `append` opens the file again.
    """

    def __init__(self, path: Path, max_bytes: int, max_files: int) -> None:
        """There are at most `max_files` files, each of `max_bytes` and the rest of a batch."""
        self.path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._fd: int | None = None
        self._size = 0

    def open(self) -> None:
        """Opens the file; the last line of a broker that crashed is ended."""
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                size += os.write(fd, b"\n")
        except OSError:
            os.close(fd)
            raise
        self._fd, self._size = fd, size

    def append(self, lines: bytes) -> None:
        """Appends whole lines, all or none of them."""
        if self._fd is not None and self._size >= self._max_bytes:
            self._rotate()
        if self._fd is None:
            self.open()
        fd = self._fd
        assert fd is not None
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, self._size)
            self.close()
            raise
        self._size += len(lines)

    def _rotate(self) -> None:
        self.close()
        for number in range(self._max_files - 1, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1)
            with suppress(FileNotFoundError):
                newer.replace(older)
        if self._max_files == 1:
            self.path.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
