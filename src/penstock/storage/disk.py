"""The disk as a port, and the real one.

Everything the storage layer does to files goes through `Disk`, `File` and `Mapping`, so that a
test can put a disk underneath that forgets what was not synced, tears writes, fills up or fails.
Operations raise `OSError`, as the operating system does; the log turns it into a storage error.

What survives a power cut, by these calls alone: bytes of a file after `File.sync`, those written
through a mapping among them; a created, renamed or removed name after `sync_directory` on its
directory.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.core.buffers import Buffer


class File(Protocol):
    """An open file without a cursor: every call names its position."""

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile`; `ValueError` after `close`."""
        ...

    def write_at(self, data: Buffer, position: int) -> None:
        """Writes all of `data`, or raises; after an error any part of it may be in the file."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the bytes can be had without waiting for the disk, as far as can be told."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Allocates blocks up to `size`, growing the file to it (`preallocate`)."""
        ...

    def allocate(self, position: int, size: int) -> None:
        """A hint that the bytes from `position` on will be written soon.

        It may give the file blocks, never another size, and never fails. `truncate` takes back
        what was not used.
        """
        ...

    def sync(self) -> None:
        """Returns when the file's bytes and size are durable."""
        ...

    def close(self) -> None: ...


class Mapping(Protocol):
    """A file mapped into memory, writable, of a fixed size.

    `buffer` is what `struct` packs into. A byte may be written only below what `reserve` was
    asked for: on a full disk a write into a hole would kill the process with SIGBUS, while
    `reserve` raises an `OSError` that stops one partition.
    """

    @property
    def buffer(self) -> mmap.mmap | bytearray: ...

    def reserve(self, size: int) -> None: ...

    def close(self) -> None: ...


class DiskSpace(NamedTuple):
    """Bytes of a file system: all of them, and those that can still be written."""

    total: int
    usable: int


class Disk(Protocol):
    """A file system. Paths are plain strings."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing; `create` makes an empty file where none is."""
        ...

    def map(self, path: str, size: int) -> Mapping:
        """Maps the file's first `size` bytes, creating the file or growing it with zeros."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def names(self, directory: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def make_directory(self, path: str) -> None:
        """Creates the directory and its parents; fine where it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file that has the target's name."""
        ...

    def remove(self, path: str) -> None:
        """Fine where there is no such file."""
        ...

    def remove_directory(self, path: str) -> None:
        """Removes a directory with what is in it; fine where there is none."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def space(self, path: str) -> DiskSpace:
        """The room of the file system that a directory is on."""
        ...

    def lock(self, path: str) -> "Lock | None":
        """Takes the lock file for this process, or gives None where another one holds it."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Writes a small file so that a crash leaves the old or the new content, never a mixture."""
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(str(Path(path).parent))


_FALLOC_FL_KEEP_SIZE = 1

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_PROBES = 16
_PROBE_BYTES = 128 * 1024


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's `fallocate`, which Python has only in the form that changes the file's size."""
    try:
        function = ctypes.CDLL(None).fallocate64
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found: Callable[[int, int, int, int], int] = function
    return found


_fallocate = _find_fallocate()


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        if self._fd < 0:
            # The number may be another file's by now.
            raise ValueError("the file is closed")
        return self._fd

    def write_at(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        size = len(data)
        if written == size:
            return
        rest = memoryview(data)
        while written < size:
            written += os.pwrite(self._fd, rest[written:], position + written)

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def is_cached(self, position: int, size: int) -> bool:
        probe = bytearray(1)
        # The kernel reads ahead: what lies between two pages that are there is mostly there too.
        step = max(size // _PROBES, _PROBE_BYTES)
        try:
            for at in (*range(position, position + size, step), position + size - 1):
                os.preadv(self._fd, [probe], at, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        return True

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def allocate(self, position: int, size: int) -> None:
        if _fallocate is not None:
            # Without blocks (the disk is full, or cannot do this) the write itself will tell.
            _fallocate(self._fd, _FALLOC_FL_KEEP_SIZE, position, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsMapping:
    """A shared mapping: what is written is in the page cache at once, and survives kill -9."""

    __slots__ = ("_fd", "_map")

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, size)
        # An index is looked up here and there. Read ahead in a file that is a hole, the kernel
        # would fill megabytes with zeros for the first entry: 20 ms for each new partition.
        self._map.madvise(mmap.MADV_RANDOM)

    @property
    def buffer(self) -> mmap.mmap:
        return self._map

    def reserve(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def close(self) -> None:
        if self._fd >= 0:
            self._map.close()
            os.close(self._fd)
            self._fd = -1


class OsLock:
    """An advisory lock that the kernel drops when the process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class OsDisk:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, 0o644))

    def map(self, path: str, size: int) -> OsMapping:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
            return OsMapping(fd, size)
        except BaseException:
            os.close(fd)
            raise

    def read_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self, path: str) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> OsLock | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Java's file locks are of this other kind: this one keeps Apache Kafka out, and is
            # kept out by it. Within one process only the first kind tells.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return OsLock(fd)
