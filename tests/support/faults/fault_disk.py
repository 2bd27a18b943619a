"""A disk in memory on which any call can fail, as a disk and its kernel fail.

It is a `CrashDisk`, and every call that can fail counts, also those that only read. A planned fault
is an error at one call, by its number; it may last, for the log directory that it hits or for all.

After a failed sync the kernel reports success for the next one: the pages that it could not write
count as clean and are lost with the next power failure, unless they are written again.
"""

import errno
import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random
from typing import NamedTuple
from weakref import WeakValueDictionary

from penstock.core.buffers import Buffer
from penstock.storage.disk import Descriptor, DiskSpace
from tests.support.faults.hanging_jobs import hang
from tests.support.storage.crash_disk import CrashDisk, CrashFile, CrashLock, Fault
from tests.support.storage.crash_nodes import CrashMode, FileNode

_SPACE_CALLS = frozenset({"create", "write", "reserve"})
_OPEN_CALLS = frozenset({"open", "map", "names", "sync_directory", "read_file", "lock"})
_CHANGING_CALLS = _SPACE_CALLS | {"truncate", "rename", "remove", "open", "map", "set_modified"}
_AFFECTED_CALLS: dict[int, frozenset[str] | None] = {
    errno.EIO: None,
    errno.ENOSPC: _SPACE_CALLS,
    errno.EMFILE: _OPEN_CALLS,
    errno.EROFS: _CHANGING_CALLS,
}
"""The calls that an error can hit; None for all."""


class PowerFailure(BaseException):
    """The machine stopped. Not an `Exception`, so that no code under test catches it."""


class DiskFault(NamedTuple):
    """An error at the first possible call from number `at` on."""

    at: int
    error: int
    lasting_calls: int = 1
    """How many calls that it can hit fail; in its log directory, or everywhere for EMFILE."""
    written_share: float = 0.0
    """The share of the bytes that a failing write stores."""
    operation: str = ""
    """The only kind of call that it hits; empty for all."""
    suffix: str = ""
    """How the paths end that it hits."""

    def can_hit(self, operation: str, path: str) -> bool:
        if not path.endswith(self.suffix):
            return False
        if self.operation:
            return operation == self.operation
        calls = _AFFECTED_CALLS[self.error]
        return calls is None or operation in calls


class FailedCall(NamedTuple):
    """A call that failed."""

    operation: str
    path: str
    error: int

    @property
    def log_dir(self) -> str:
        return _log_dir_of(self.path)

    def __repr__(self) -> str:
        return f"{self.operation} {self.path}: {errno.errorcode[self.error]}"


class FaultDisk(CrashDisk):
    """The disk. `plan` adds faults; `faults_hit` has the calls that failed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.faults_hit: list[FailedCall] = []
        self._planned: list[DiskFault] = []
        self._active: list[_ActiveFault] = []
        self._next_failures: list[tuple[str, str, int]] = []
        self._hanging_paths: list[tuple[str, str]] = []
        self.written_share = 0.0
        """The share of its bytes that the write which fails now stores."""
        self.power_off_at: int | None = None
        """The number of the call at which the power fails."""
        self.is_powered_off = False
        self.on_power_off: Callable[[], object] = lambda: None
        self._pinned: WeakValueDictionary[int, FaultDescriptor] = WeakValueDictionary()
        self._last_descriptor = 1_000_000

    # --- faults

    def fail_next(self, operation: str, pattern: str, error: int = errno.EIO) -> None:
        """Makes the next such call on a path that matches fail, once."""
        self._next_failures.append((operation, pattern, error))

    def hang_on(self, operation: str, pattern: str) -> None:
        """Makes such calls on paths that match hang until `stop_hanging`."""
        self._hanging_paths.append((operation, pattern))

    @property
    def may_hang(self) -> bool:
        return bool(self._hanging_paths)

    def stop_hanging(self) -> None:
        """Lets later calls return; those that hang continue with `JobPools.release`."""
        self._hanging_paths.clear()

    def plan(self, *faults: DiskFault) -> None:
        """Adds faults; their call numbers count from now on."""
        self._planned += [fault._replace(at=self.calls + fault.at) for fault in faults]
        self._planned.sort()

    def cancel_planned(self) -> None:
        """Drops the faults that have not hit a call yet."""
        self._planned.clear()

    def heal(self) -> None:
        """Ends all faults, also those to come."""
        super().heal()
        self._planned.clear()
        self._active.clear()
        self._next_failures.clear()
        self._hanging_paths.clear()

    def step(self, operation: str, path: str) -> Fault | None:
        if self.is_powered_off or self.calls == self.power_off_at:
            self.is_powered_off = True
            self.on_power_off()
            raise PowerFailure
        outcome = super().step(operation, path)
        self.calls += 1
        if any(
            operation == hanging and fnmatchcase(path, pattern)
            for hanging, pattern in self._hanging_paths
        ):
            hang()
        for failure in self._next_failures:
            if failure[0] == operation and fnmatchcase(path, failure[1]):
                self._next_failures.remove(failure)
                self.faults_hit.append(FailedCall(operation, path, failure[2]))
                raise OSError(failure[2], os.strerror(failure[2]), path)
        while self._planned and self._planned[0].at < self.calls:
            if not self._planned[0].can_hit(operation, path):
                break
            fault = self._planned.pop(0)
            self._active.append(_ActiveFault(fault, _log_dir_of(path)))
        for active in self._active:
            if active.strikes(operation, path):
                self.faults_hit.append(FailedCall(operation, path, active.fault.error))
                if operation == "write" and active.fault.written_share:
                    self.written_share = active.fault.written_share
                    return Fault(operation, path, active.fault.error, 0, 0)
                raise OSError(active.fault.error, os.strerror(active.fault.error), path)
        return outcome

    # --- crashes

    def after_power_failure(self, mode: CrashMode, rng: Random) -> "FaultDisk":
        """Returns the disk as a power failure at this moment leaves it, without faults."""
        disk = FaultDisk()
        disk.now_ms = self.now_ms
        disk._root = self._root.after_crash(mode, rng)
        return disk

    def on_process_exit(self) -> None:
        """Closes what a process had open; what it wrote stays in the page cache."""
        self._locks.clear()
        for node in self._root.walk():
            if isinstance(node, FileNode):
                node.mappings = 0

    # --- calls that a CrashDisk does not count

    def names(self, directory: str) -> list[str]:
        self.step("names", directory)
        return super().names(directory)

    def size(self, path: str) -> int:
        self.step("size", path)
        return super().size(path)

    def modified_ms(self, path: str) -> int:
        self.step("modified", path)
        return super().modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.step("set_modified", path)
        super().set_modified_ms(path, modified_ms)

    def read_file(self, path: str) -> bytes:
        self.step("read_file", path)
        return super().read_file(path)

    def space(self, path: str) -> DiskSpace:
        self.step("space", path)
        return super().space(path)

    def lock(self, path: str) -> CrashLock | None:
        self.step("lock", path)
        return super().lock(path)

    def open(self, path: str, *, create: bool = False) -> "FaultFile":
        self.step("open", path)
        return FaultFile(self, path, self._file(path, create=create))

    # --- descriptors

    def pin(self, file: "FaultFile") -> "FaultDescriptor":
        """Returns a descriptor for `pinned_file`, with a number that no other has had."""
        self._last_descriptor += 1
        descriptor = FaultDescriptor(self._last_descriptor, file)
        self._pinned[self._last_descriptor] = descriptor
        return descriptor

    def pinned_file(self, number: int) -> "FaultFile":
        """Returns the file of a descriptor that something refers to."""
        descriptor = self._pinned.get(number)
        assert descriptor is not None, f"descriptor {number} is used, and closed"
        return descriptor.file


class FaultDescriptor(Descriptor):
    """The descriptor of a file in memory, valid while something refers to it."""

    __slots__ = ("__weakref__", "file", "number")

    def __init__(self, number: int, file: "FaultFile") -> None:
        super().__init__(-1)
        self.number = number
        # Another handle: the log may close its own at any time.
        self.file = FaultFile(file._disk, file._path, file._opened())

    def fileno(self) -> int:
        return self.number


class FaultFile(CrashFile):
    """An open file. A failed sync loses the unsynced bytes without telling it again."""

    def pin(self) -> Descriptor:
        if self._node is None:
            raise ValueError("the file is closed")
        assert isinstance(self._disk, FaultDisk)
        return self._disk.pin(self)

    def write_at(self, data: Buffer, position: int) -> None:
        node = self._opened()
        fault = self._disk.step("write", self._path)
        stored = bytes(data)
        if fault is not None:
            assert isinstance(self._disk, FaultDisk)
            stored = stored[: int((len(stored) - 1) * self._disk.written_share)]
        node.write(position, stored)
        node.modified_ms = self._disk.now_ms
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self._path)

    def sync(self) -> None:
        node = self._opened()
        try:
            self._disk.step("sync", self._path)
        except OSError:
            node.lose_unsynced()
            raise
        node.sync()


class _ActiveFault:
    """A fault that has hit a log directory."""

    def __init__(self, fault: DiskFault, log_dir: str) -> None:
        self.fault = fault
        self.log_dir = log_dir
        self._remaining = fault.lasting_calls

    def strikes(self, operation: str, path: str) -> bool:
        if not self._remaining or not self.fault.can_hit(operation, path):
            return False
        if self.fault.error != errno.EMFILE and _log_dir_of(path) != self.log_dir:
            return False
        self._remaining -= 1
        return True


def _log_dir_of(path: str) -> str:
    return "/" + path.split("/")[1]
