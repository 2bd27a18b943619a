"""Ranges of files that are sent to a socket without blocking the event loop on a disk.

Before a range is sent, its pages are probed: those that are not in the page cache are first read by
a thread. The log may close the file at any time, on any thread, and the number of its descriptor
may then belong to another file. Each use therefore pins the file, so that it stays open until then.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.net.server.send_queue import FileRange, PinnedFile, SendableFile

CHUNK: Final = 1024 * 1024
"""Bytes that are probed, loaded and sent at a time."""
SMALL_RANGE: Final = 32 * 1024
"""A range of up to so many bytes is read and sent with the bytes around it: one system call instead
of four for the probe, the bytes before it and the range itself."""
_PROBE_STEP: Final = 128 * 1024
_READ_SIZE: Final = 256 * 1024
_THREADS: Final = 2

_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})

Probe = Callable[[int, int, int], bool]
"""`probe(descriptor, position, size)` returns whether a read would not wait for a disk."""


ExecutorOf = Callable[[SendableFile], ThreadPoolExecutor]


class FileGoneError(Exception):
    """The range does not exist any more: its file was closed or truncated."""


def pin(part: FileRange) -> PinnedFile:
    """Returns the file of a range; its descriptor stays open while the caller refers to the result.

    A caller keeps it for one probe and one send, not until the client has read the range: a slow
    client must not keep descriptors open. Raises FileGoneError if the file is closed.
    """
    try:
        return part.file.pin()
    except (FileNotFoundError, ValueError):
        raise FileGoneError("its file was closed, so the segment has been deleted") from None


def in_page_cache(fd: int, position: int, size: int) -> bool:
    """Probes one byte in each 128 KiB, and the last; True on file systems without the probe."""
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


def read_small(part: FileRange) -> bytearray | None:
    """Returns the bytes of a small range; None if a read would wait for a disk or fail."""
    if _NOWAIT is None:
        return None
    pinned = pin(part)
    data = bytearray(part.size)
    try:
        count = os.preadv(pinned.fileno(), [data], part.position, _NOWAIT)
    except OSError:
        return None
    return data if count == part.size else None


class FileLoader:
    """Probes ranges, and reads cold ones on threads. One for all connections of a server.

    `executor_of` returns the threads for a file; without it the loader has its own.
    """

    def __init__(self, executor_of: ExecutorOf | None = None, probe: Probe = in_page_cache) -> None:
        self.is_warm = probe
        self.reads_small = probe is in_page_cache
        """Whether small ranges are read without a probe."""
        self.loads = 0
        """How many chunks were read on threads."""
        self._executor_of = executor_of
        self._own_executor: ThreadPoolExecutor | None = None

    def load(
        self,
        loop: asyncio.AbstractEventLoop,
        file: SendableFile,
        position: int,
        size: int,
        done: Callable[[bytes | OSError], None],
        *,
        keep: bool,
    ) -> None:
        """Reads on a thread, then calls `done` in the loop, with the bytes if `keep`.

        Without `keep` the bytes are only read into the page cache, with some that follow them.
        """
        executor = self._own_executor if self._executor_of is None else self._executor_of(file)
        if executor is None:
            executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-cold-read")
            self._own_executor = executor
        self.loads += 1

        def finished(future: asyncio.Future[bytes]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                done(future.result())
            else:
                done(error if isinstance(error, OSError) else OSError(str(error)))

        read = _read if keep else _warm
        loop.run_in_executor(executor, read, file, position, size).add_done_callback(finished)

    def close(self) -> None:
        if self._own_executor is not None:
            self._own_executor.shutdown()
            self._own_executor = None


def _read(file: SendableFile, position: int, size: int) -> bytes:
    pinned = file.pin()
    return os.pread(pinned.fileno(), size, position)


def _warm(file: SendableFile, position: int, size: int) -> bytes:
    pinned = file.pin()
    fd = pinned.fileno()
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
