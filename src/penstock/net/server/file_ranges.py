"""Ranges of files on their way to a socket, so that a disk never stalls the event loop.

Before a range is sent it is probed: are its pages in the page cache? What is not is read by a
thread first. The thread has its own descriptor, so that a file closed meanwhile is no other file's.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.net.server.send_queue import FileRange

CHUNK: Final = 1024 * 1024
"""What is probed, loaded and sent at a time."""
_PROBE_STEP: Final = 128 * 1024
_READ_SIZE: Final = 256 * 1024
_THREADS: Final = 2

_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})

Probe = Callable[[int, int, int], bool]
"""(descriptor, position, size): whether it can be read without waiting for a disk."""


class FileGoneError(Exception):
    """The range is not there any more: its file was closed or cut."""


def descriptor(part: FileRange) -> int:
    """The file's descriptor, now: not to be kept until later, when the file may be closed."""
    try:
        fd = part.file.fileno()
    except (OSError, ValueError):
        fd = -1
    if fd < 0:
        raise FileGoneError("its file was closed, so the segment was deleted meanwhile")
    return fd


def in_page_cache(fd: int, position: int, size: int) -> bool:
    """Looks at one byte in each 128 KiB, and the last; a file system that cannot say is quick."""
    if _NOWAIT is None:
        return True
    byte = [bytearray(1)]
    last = position + size - 1
    try:
        for at in range(position, last, _PROBE_STEP):
            os.preadv(fd, byte, at, _NOWAIT)
        os.preadv(fd, byte, last, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return True
        raise
    return True


class FileLoader:
    """Probes, and threads that read what is cold. One for all connections of a server."""

    def __init__(
        self, executor: ThreadPoolExecutor | None = None, probe: Probe = in_page_cache
    ) -> None:
        self.is_warm = probe
        self.loads = 0
        """How many chunks threads were asked for."""
        self._executor = executor
        self._owned = executor is None

    def load(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        position: int,
        size: int,
        done: Callable[[bytes | OSError], None],
        *,
        keep: bool,
    ) -> None:
        """Read in a thread; `done` is called in the loop, with the bytes if they are to be kept.

        Without `keep` the bytes only come into the page cache, and so do some after them.
        """
        executor = self._executor
        if executor is None:
            executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-cold-read")
            self._executor = executor
        self.loads += 1
        own = os.dup(fd)

        def finished(future: asyncio.Future[bytes]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                done(future.result())
            else:
                done(error if isinstance(error, OSError) else OSError(str(error)))

        read = _read if keep else _warm
        loop.run_in_executor(executor, read, own, position, size).add_done_callback(finished)

    def close(self) -> None:
        if self._owned and self._executor is not None:
            self._executor.shutdown()
            self._executor = None


def _read(fd: int, position: int, size: int) -> bytes:
    try:
        return os.pread(fd, size, position)
    finally:
        os.close(fd)


def _warm(fd: int, position: int, size: int) -> bytes:
    try:
        with contextlib.suppress(AttributeError, OSError):
            os.posix_fadvise(fd, position, size + CHUNK, os.POSIX_FADV_WILLNEED)
        buffer = bytearray(_READ_SIZE)
        end = position + size
        while position < end:
            count = os.preadv(fd, [buffer], position)
            if count == 0:
                break
            position += count
        return b""
    finally:
        os.close(fd)
