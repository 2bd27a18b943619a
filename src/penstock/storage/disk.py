"""The port to the file system, and its implementation with the operating system's files.

All file I/O of the storage layer goes through `Disk`, `File` and `MappedFile`, so that tests can
use a disk that loses unsynced data, tears writes, fills up or fails. Operations raise `OSError`,
as the operating system does; the log turns it into a storage error.

What survives a power failure: the bytes of a file after `File.sync`, including those
written through a mapping; a created, renamed or removed name after `sync_directory` of its
directory.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from penstock.core.buffers import Buffer
from penstock.storage.file_cache import DEFAULT_LIMIT, FileCache


class Descriptor:
    """An open file descriptor, reference-counted: it is closed with the last reference to it.

    The number of a closed descriptor may belong to another file a moment later. A caller that
    passes `fd` to the operating system therefore refers to the `Descriptor` until the call has
    returned; then another thread may close the file at any time.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def fileno(self) -> int:
        return self.fd

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class File(Protocol):
    """An open file without a cursor: every call has a position."""

    def pin(self) -> Descriptor:
        """Returns the descriptor, which stays open for as long as the caller refers to it.

        Raises `ValueError` after `close`, and `OSError` if the file has no descriptor.
        """
        ...

    def identity(self) -> Hashable:
        """Returns a value that is the same for all handles of this file, and of no other."""
        ...

    def write_at(self, data: Buffer, position: int) -> None:
        """Writes all of `data`. After an `OSError` any part of it may be in the file."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Returns `size` bytes; fewer only at the end of the file."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Returns whether the bytes are probably in memory, so that a read does not block."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Allocates blocks up to `size`, growing the file to it (`preallocate`)."""
        ...

    def allocate(self, position: int, size: int) -> None:
        """Hints that the bytes from `position` on will be written soon.

        It may allocate blocks, but never changes the size and never fails. `truncate` releases
        the unused blocks.
        """
        ...

    def sync(self) -> None:
        """Returns when the file's bytes and size are durable."""
        ...

    def close(self) -> None: ...


class MappedFile(Protocol):
    """A file mapped into memory, writable, of a fixed size.

    Bytes of `buffer` may be written only below the size that was passed to `reserve`: on a full
    disk, a write into a hole would kill the process with SIGBUS, while `reserve` raises an
    `OSError`, which stops one partition only.
    """

    @property
    def buffer(self) -> mmap.mmap | bytearray: ...

    def reserve(self, path: str, size: int) -> None:
        """Allocates blocks up to `size`; `path` is the current name of the file."""
        ...

    def close(self) -> None: ...


class DiskSpace(NamedTuple):
    """The bytes of a file system: in total, and those that can still be written."""

    total: int
    usable: int


class Disk(Protocol):
    """A file system. Paths are plain strings."""

    @property
    def file_cache(self) -> FileCache:
        """The files of logs that stay open."""
        ...

    def boot_id(self) -> str:
        """Identifies the run of the machine; empty if it is unknown.

        What was written is still there as long as the machine runs, whatever happens to processes.
        """
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens a file for reading and writing; with `create` it is created if necessary."""
        ...

    def map(self, path: str, size: int, *, reserve: int = 0) -> MappedFile:
        """Maps the first `size` bytes; creates the file, or extends it with zeros, if necessary.

        `reserve` does what `MappedFile.reserve` does, without opening the file again.
        """
        ...

    def read_file(self, path: str) -> bytes: ...

    def names(self, directory: str) -> list[str]:
        """Returns the names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def make_directory(self, path: str) -> None:
        """Creates the directory and its parents, unless they exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames atomically; replaces a file that has the name `target`."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file if it exists."""
        ...

    def remove_directory(self, path: str) -> None:
        """Removes a directory and its content if it exists."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def space(self, path: str) -> DiskSpace:
        """Returns the space of the file system that contains the directory."""
        ...

    def lock(self, path: str) -> "Lock | None":
        """Locks the file for this process; returns None if another process has locked it."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


def write_file(disk: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    """Writes a small file in place; with `sync` its content is durable on return."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
        if sync:
            file.sync()
    finally:
        file.close()


def write_temporary(disk: Disk, path: str, data: bytes) -> None:
    """Writes the content that `replace_by_temporary` gives to a file, unsynced."""
    write_file(disk, path + ".tmp", data, sync=False)


def replace_by_temporary(disk: Disk, path: str) -> None:
    """Replaces a file by its `write_temporary`; a sync of the directory must follow.

    A crash leaves the old or the new content. Many files are replaced faster in two passes: file
    systems with a journal make all of them durable with the first sync.
    """
    temporary = path + ".tmp"
    file = disk.open(temporary)
    try:
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Replaces a small file atomically: a crash leaves the old or the new content."""
    temporary = path + ".tmp"
    write_file(disk, temporary, data)
    disk.rename(temporary, path)
    disk.sync_directory(str(Path(path).parent))


_PRIVATE_FILE = 0o600
_PRIVATE_DIRECTORY = 0o700
"""Records and credentials are for the broker's own user."""

_FALLOC_FL_KEEP_SIZE = 1

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_SHRINK_BY = 16
_MAX_PROBES = 16
_PROBE_BYTES = 128 * 1024


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Returns Linux's `fallocate`; Python only offers the variant that changes the file size."""
    try:
        function = ctypes.CDLL(None).fallocate64
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    fallocate: Callable[[int, int, int, int], int] = function
    return fallocate


_fallocate = _find_fallocate()


_CLOSED = Descriptor(-1)


class OsFile:
    """A file of the operating system. `close` waits for no one: a thread that reads finishes."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor

    def pin(self) -> Descriptor:
        descriptor = self._descriptor
        if descriptor is _CLOSED:
            raise ValueError("the file is closed")
        return descriptor

    def identity(self) -> tuple[int, int]:
        descriptor = self._descriptor
        status = os.fstat(descriptor.fd)
        return status.st_dev, status.st_ino

    def write_at(self, data: Buffer, position: int) -> None:
        descriptor = self._descriptor
        written = os.pwrite(descriptor.fd, data, position)
        size = len(data)
        if written == size:
            return
        rest = memoryview(data)
        while written < size:
            written += os.pwrite(descriptor.fd, rest[written:], position + written)

    def read_at(self, position: int, size: int) -> bytes:
        descriptor = self._descriptor
        data = os.pread(descriptor.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        received = len(data)
        while received < size:
            data = os.pread(descriptor.fd, size - received, position + received)
            if not data:
                break
            parts.append(data)
            received += len(data)
        return b"".join(parts)

    def is_cached(self, position: int, size: int) -> bool:
        descriptor = self._descriptor
        probe = bytearray(1)
        # The kernel reads ahead: pages between two cached pages are mostly cached too.
        step = max(size // _MAX_PROBES, _PROBE_BYTES)
        try:
            for at in (*range(position, position + size, step), position + size - 1):
                os.preadv(descriptor.fd, [probe], at, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        return True

    def size(self) -> int:
        descriptor = self._descriptor
        return os.fstat(descriptor.fd).st_size

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor
        os.ftruncate(descriptor.fd, size)

    def reserve(self, size: int) -> None:
        descriptor = self._descriptor
        os.posix_fallocate(descriptor.fd, 0, size)

    def allocate(self, position: int, size: int) -> None:
        descriptor = self._descriptor
        if _fallocate is not None:
            # An error (full disk, no support) is ignored: the write itself will fail.
            _fallocate(descriptor.fd, _FALLOC_FL_KEEP_SIZE, position, size)

    def sync(self) -> None:
        descriptor = self._descriptor
        os.fdatasync(descriptor.fd)

    def close(self) -> None:
        self._descriptor = _CLOSED


class OsMapping:
    """A shared mapping: written bytes are in the page cache at once and survive kill -9."""

    __slots__ = ("_disk", "_map")

    def __init__(self, disk: "OsDisk", fd: int, size: int) -> None:
        self._disk = disk
        # Before Python 3.13 the object has a duplicate of the descriptor.
        self._map = mmap.mmap(fd, size, **_UNTRACKED)
        # Lookups in an index are random. With read-ahead in a file that is a hole, the kernel would
        # fill megabytes with zeros for the first entry: 20 ms for each new partition.
        self._map.madvise(mmap.MADV_RANDOM)

    @property
    def buffer(self) -> mmap.mmap:
        return self._map

    def reserve(self, path: str, size: int) -> None:
        file = self._disk.open(path)
        file.reserve(size)

    def close(self) -> None:
        self._map.close()


class OsLock:
    """An advisory lock that the kernel releases when the process dies."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor: Descriptor | None = descriptor

    def release(self) -> None:
        self._descriptor = None


_BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"


class OsDisk:
    """The operating system's files; at most `max_open_files` of the logs' files stay open."""

    def __init__(self, max_open_files: int = DEFAULT_LIMIT) -> None:
        self.file_cache = FileCache(max_open_files)

    def boot_id(self) -> str:
        try:
            return Path(_BOOT_ID_FILE).read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def _open(self, path: str, flags: int) -> Descriptor:
        while True:
            try:
                return Descriptor(os.open(path, flags | os.O_CLOEXEC, _PRIVATE_FILE))
            except OSError as error:
                self._make_room(error)

    def _make_room(self, error: OSError) -> None:
        """Closes idle files if `error` is a lack of descriptors; otherwise raises it."""
        if error.errno not in _NO_DESCRIPTOR or not self.file_cache.shrink(_SHRINK_BY):
            raise error

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(self._open(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def map(self, path: str, size: int, *, reserve: int = 0) -> OsMapping:
        descriptor = self._open(path, os.O_RDWR | os.O_CREAT)
        if os.fstat(descriptor.fd).st_size < size:
            os.ftruncate(descriptor.fd, size)
        if reserve:
            os.posix_fallocate(descriptor.fd, 0, reserve)
        while True:
            try:
                return OsMapping(self, descriptor.fd, size)
            except OSError as error:
                self._make_room(error)

    def read_file(self, path: str) -> bytes:
        descriptor = self._open(path, os.O_RDONLY)
        with open(descriptor.fd, "rb", closefd=False) as file:
            return file.read()

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
        os.makedirs(path, _PRIVATE_DIRECTORY, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor.fd)

    def space(self, path: str) -> DiskSpace:
        status = os.statvfs(path)
        return DiskSpace(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def lock(self, path: str) -> OsLock | None:
        descriptor = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Java uses this second kind of lock: it excludes Apache Kafka. Within one process only
            # the first kind works.
            fcntl.lockf(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return OsLock(descriptor)
