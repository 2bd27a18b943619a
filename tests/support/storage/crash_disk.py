"""A disk in memory that loses unsynced data, tears writes, fills up and fails on demand.

It implements `penstock.storage.disk.Disk`. A test runs some work on it, lets it crash, and
continues with an image that a power failure could have left::

    disk = CrashDisk(crash_at=17)          # the 18th operation does not happen
    with suppress(SimulatedCrash):
        work(disk)
    for seed in range(10):
        recover(disk.image(CrashMode.TORN, Random(seed)))

Operations change files or make them durable: create, write, truncate, reserve, sync, rename,
remove. `operations` counts them, so that a first run determines the number of crash points. Writes
into a mapping are not operations; a crash may leave any of its pages.
"""

import errno
import os
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from random import Random
from typing import NoReturn

from penstock.core.buffers import Buffer
from penstock.storage.disk import Descriptor, DiskSpace
from penstock.storage.file_cache import CacheEntry, FileCache
from tests.support.storage.crash_nodes import (
    CrashMode,
    DirectoryNode,
    FileNode,
    Link,
    Node,
    Rename,
    Unlink,
)

__all__ = ["CrashDisk", "CrashMode", "Fault", "SimulatedCrash"]

OPERATIONS = frozenset(
    {"create", "write", "truncate", "reserve", "sync", "sync_directory", "rename", "remove"}
)
FALLIBLE = OPERATIONS | {"open", "read", "map", "names", "read_file"}
"""The last two on a `FaultDisk` only."""


class SimulatedCrash(BaseException):
    """The machine stopped. Not an `Exception`, so that no code under test catches it."""


@dataclass
class Fault:
    """An error that an operation raises from now on; see `CrashDisk.fail`."""

    operation: str
    pattern: str
    error: int
    after: int
    partial: int | None
    calls: int = 0
    """How often the operation was called, failed or not."""

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or not fnmatchcase(path, self.pattern):
            return False
        self.calls += 1
        return self.calls > self.after


class SmallFileCache(FileCache):
    """A cache so small that files are closed and opened again all the time.

    Without room it closes nothing and refuses nothing: that would need a flush.
    """

    def __init__(self) -> None:
        super().__init__(limit=3)

    def add(self, entry: CacheEntry, *, may_exceed: bool = False) -> bool:
        return super().add(entry, may_exceed=True)


class CrashDisk:
    """The disk. `now_ms` is the time that changed files get."""

    def __init__(self, *, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.operations = 0
        self.crashed = False
        self.now_ms = 1_700_000_000_000
        self.file_cache: FileCache = SmallFileCache()
        self._root = DirectoryNode()
        self._faults: list[Fault] = []
        self._locks: set[str] = set()
        self._boot = 0

    def boot_id(self) -> str:
        return str(self._boot)

    # --- crashes and faults

    def image(self, mode: CrashMode, rng: Random | None = None) -> "CrashDisk":
        """Returns a new disk with what a crash at this moment leaves; everything on it is
        durable."""
        disk = CrashDisk()
        disk.now_ms = self.now_ms
        disk._boot = self._boot + 1
        disk._root = self._root.after_crash(mode, rng or Random(0))
        return disk

    def fail(
        self,
        operation: str,
        pattern: str,
        error: int,
        *,
        after: int = 0,
        partial: int | None = None,
    ) -> Fault:
        """Makes an operation raise `OSError(error)` on paths that match, until `heal`.

        The first `after` calls still work. A failing write stores its first `partial` bytes.
        """
        if operation not in FALLIBLE:
            raise ValueError(f"{operation!r} is none of {', '.join(sorted(FALLIBLE))}")
        fault = Fault(operation, pattern, error, after, partial)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Ends all faults."""
        self._faults.clear()

    def end_faults(self, faults: Collection[Fault]) -> None:
        """Ends some of the faults, as far as they have not ended yet."""
        ended = {id(fault) for fault in faults}
        self._faults = [fault for fault in self._faults if id(fault) not in ended]

    def make_durable(self) -> None:
        """Makes everything durable, as if time had passed; not an operation."""
        for node in self._root.walk():
            node.sync()

    def step(self, operation: str, path: str) -> Fault | None:
        """Counts an operation; crashes or fails if planned. The fault of a write is returned to
        the caller, which stores a part first."""
        if operation in OPERATIONS:
            if self.crashed or self.operations == self.crash_at:
                self.crashed = True
                raise SimulatedCrash(f"at operation {self.operations}: {operation} {path}")
            self.operations += 1
        for fault in self._faults:
            if fault.strikes(operation, path):
                if fault.partial is not None and operation == "write":
                    return fault
                _raise(fault.error, path)
        return None

    # --- the port

    def open(self, path: str, *, create: bool = False) -> "CrashFile":
        self.step("open", path)
        return CrashFile(self, path, self._file(path, create=create))

    def map(self, path: str, size: int, *, reserve: int = 0) -> "CrashMapping":
        self.step("map", path)
        node = self._file(path, create=True)
        if node.size < size:
            self.step("truncate", path)
            node.resize(size)
        mapping = CrashMapping(self, path, node, size)
        if reserve:
            try:
                mapping.reserve(path, reserve)
            except OSError:
                mapping.close()
                raise
        return mapping

    def read_file(self, path: str) -> bytes:
        self.step("read", path)
        node = self._file(path)
        return node.read(0, node.size)

    def names(self, directory: str) -> list[str]:
        return sorted(self._directory(directory).entries)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), DirectoryNode)

    def size(self, path: str) -> int:
        return self._file(path).size

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def make_directory(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.entries.get(name)
            if node is None:
                self.step("create", path)
                node = DirectoryNode()
                directory.change(Link(name, node))
            if not isinstance(node, DirectoryNode):
                _raise(errno.EEXIST, path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        if node is None:
            _raise(errno.ENOENT, source)
        source_directory, source_name = self._place(source)
        target_directory, target_name = self._place(target)
        replaced = target_directory.entries.get(target_name)
        if isinstance(node, FileNode):
            if isinstance(replaced, DirectoryNode):
                _raise(errno.EISDIR, target)
        elif isinstance(replaced, FileNode):
            _raise(errno.ENOTDIR, target)
        elif replaced is not None and replaced.entries:
            _raise(errno.ENOTEMPTY, target)
        self.step("rename", source)
        if source_directory is target_directory:
            source_directory.change(Rename(source_name, target_name, node))
        else:
            target_directory.change(Link(target_name, node))
            source_directory.change(Unlink(source_name))

    def remove(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            _raise(errno.EISDIR, path)
        if node is not None:
            self._unlink(path)

    def remove_directory(self, path: str) -> None:
        """Not atomic: a crash can happen between any two of the removals."""
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, FileNode):
            _raise(errno.ENOTDIR, path)
        for name, child in list(node.entries.items()):
            if isinstance(child, DirectoryNode):
                self.remove_directory(f"{path}/{name}")
            else:
                self._unlink(f"{path}/{name}")
        self._unlink(path)

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self.step("sync_directory", path)
        directory.sync()

    def space(self, path: str) -> DiskSpace:
        self._directory(path)
        return DiskSpace(1 << 40, 1 << 39)

    def lock(self, path: str) -> "CrashLock | None":
        if path in self._locks:
            return None
        self._file(path, create=True)
        self._locks.add(path)
        return CrashLock(self._locks, path)

    # --- names

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in _parts(path):
            child = node.entries.get(name) if isinstance(node, DirectoryNode) else None
            if child is None:
                return None
            node = child
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if node is None:
            _raise(errno.ENOENT, path)
        if isinstance(node, FileNode):
            _raise(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[DirectoryNode, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _file(self, path: str, *, create: bool = False) -> FileNode:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            _raise(errno.EISDIR, path)
        if node is None:
            if not create:
                _raise(errno.ENOENT, path)
            directory, name = self._place(path)
            self.step("create", path)
            node = FileNode(b"", self.now_ms)
            directory.change(Link(name, node))
        return node

    def _unlink(self, path: str) -> None:
        directory, name = self._place(path)
        self.step("remove", path)
        directory.change(Unlink(name))


class CrashFile:
    """An open file. It stays the same file when its name is changed or removed."""

    def __init__(self, disk: CrashDisk, path: str, node: FileNode) -> None:
        self._disk = disk
        self._path = path
        self._node: FileNode | None = node

    def pin(self) -> Descriptor:
        """A file in memory has no descriptor: read from it instead."""
        _raise(errno.EBADF, self._path)

    def identity(self) -> FileNode:
        return self._opened()

    def write_at(self, data: Buffer, position: int) -> None:
        node = self._opened()
        fault = self._disk.step("write", self._path)
        stored = bytes(data) if fault is None else bytes(data[: fault.partial])
        node.write(position, stored)
        node.modified_ms = self._disk.now_ms
        if fault is not None:
            _raise(fault.error, self._path)

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.step("read", self._path)
        return self._opened().read(position, size)

    def is_cached(self, position: int, size: int) -> bool:
        self._opened()
        return True

    def size(self) -> int:
        return self._opened().size

    def truncate(self, size: int) -> None:
        node = self._opened()
        self._disk.step("truncate", self._path)
        node.resize(size)
        node.modified_ms = self._disk.now_ms

    def reserve(self, size: int) -> None:
        node = self._opened()
        self._disk.step("reserve", self._path)
        if size > node.size:
            node.resize(size)

    def allocate(self, position: int, size: int) -> None:
        self._opened()

    def sync(self) -> None:
        node = self._opened()
        self._disk.step("sync", self._path)
        node.sync()

    def close(self) -> None:
        self._node = None

    def _opened(self) -> FileNode:
        if self._node is None:
            _raise(errno.EBADF, self._path)
        return self._node


class CrashMapping:
    """A mapped file. Writes above the reserved size are detected, at the latest on close: on a
    real disk they could kill the process."""

    def __init__(self, disk: CrashDisk, path: str, node: FileNode, size: int) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._size = size
        self._reserved = 0
        self._open = True
        self._at_first = bytes(node.data[:size])
        node.mapped = True
        node.mappings += 1

    @property
    def buffer(self) -> bytearray:
        if not self._open:
            raise ValueError("mmap closed or invalid")
        return self._node.data

    def reserve(self, path: str, size: int) -> None:
        self._disk.step("reserve", path)
        self._reserved = max(self._reserved, size)
        if size > self._node.size:
            self._node.resize(size)

    def close(self) -> None:
        if self._open:
            self._check()
            self._open = False
            self._node.mappings -= 1

    def _check(self) -> None:
        now = self._node.data[self._reserved : self._size]
        before = self._at_first[self._reserved : self._reserved + len(now)]
        assert now == before, f"{self._path} was written above the {self._reserved} bytes reserved"


class CrashLock:
    def __init__(self, open_slice: set[str], path: str) -> None:
        self._held = open_slice
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


@lru_cache(1024)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _raise(error: int, path: str) -> NoReturn:
    raise OSError(error, os.strerror(error), path)
