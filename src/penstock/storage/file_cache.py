"""Files of a log that are open only while they are used, so that partitions need no descriptors.

A `CachedFile` opens its file at the first access and then stays open until a `FileCache` closes it
to make room for another file. The cache is a clock: it closes files that were not used since it
last looked at them. A broker with 100,000 partitions thus needs descriptors for the busy ones only.

Two rules protect the data. A file that another thread is using is closed after that use: its
descriptor is reference-counted (see `Descriptor`). A file with unsynced writes stays open until it
has been synced, because the kernel may report the error of a write-back only to descriptors that
were open at that time; `FileCache.needs_flush` then requests a flush of the log.
"""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from penstock.core.buffers import Buffer

if TYPE_CHECKING:
    from penstock.storage.disk import Descriptor, Disk, File

DEFAULT_LIMIT = 8192


class CacheEntry(Protocol):
    """An open file or mapping in a `FileCache`. Its flags may be set from any thread."""

    path: str
    is_used: bool
    """Whether it was used since the cache last looked at it."""

    @property
    def is_unsynced(self) -> bool:
        """Whether it was written since its last sync, so that it must stay open."""
        ...

    def release(self) -> bool:
        """Closes it unless it `is_unsynced`; returns whether it was closed."""
        ...


class FileCache:
    """The open files of all logs, at most `limit` of them. May be used from any thread."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.needs_flush = False
        """Whether files could not be closed because they are unsynced; the flusher resets it."""
        self._is_exhausted = False
        """Whether every entry was unsynced in the last search, and none was synced since."""
        self._entries: OrderedDict[CacheEntry, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: CacheEntry, *, may_exceed: bool = False) -> bool:
        """Adds an entry that was opened; returns False if there is no room for it.

        `may_exceed` adds it also then, for a file that is closed soon.
        """
        with self._lock:
            if entry not in self._entries:
                is_full = len(self._entries) >= self.limit and not self._release(1)
                if is_full and not may_exceed:
                    return False
                self._entries[entry] = None
                self._is_exhausted = False
        return True

    def discard(self, entry: CacheEntry) -> None:
        """Removes an entry that was closed."""
        with self._lock:
            self._entries.pop(entry, None)
            self._is_exhausted = False

    def notify_synced(self) -> None:
        """Must be called when an entry has become synced."""
        self._is_exhausted = False

    def take_unsynced_directories(self, count: int) -> list[str]:
        """Returns up to `count` directories whose files could be closed after a flush.

        Those that were not used lately come first. Resets `needs_flush` if there are no others.
        """
        with self._lock:
            idle: dict[str, None] = {}
            used: dict[str, None] = {}
            for entry in self._entries:
                if entry.is_unsynced:
                    directories = used if entry.is_used else idle
                    directories[entry.path.rpartition("/")[0]] = None
            directories = idle or used
            self.needs_flush = len(directories) > count
        return list(islice(directories, count))

    def shrink(self, count: int) -> int:
        """Closes up to `count` files that are not needed now; returns how many were closed.

        Called when the process, or the system, has no descriptor for another file.
        """
        with self._lock:
            return self._release(count)

    def _release(self, count: int) -> int:
        released = 0
        entries = self._entries
        if self._is_exhausted:
            self.needs_flush = True
            return 0
        # In the first round most entries have been used since the last one.
        for _ in range(2 * len(entries)):
            if released == count or not entries:
                break
            entry, _ = entries.popitem(last=False)
            if entry.is_used:
                entry.is_used = False
            elif entry.release():
                released += 1
                continue
            else:
                self.needs_flush = True
            entries[entry] = None
        self._is_exhausted = not released
        return released


class CachedFile:
    """A file that is opened on demand, under the name that `path` has then.

    It has the methods of `File`. Reads and `sync` are allowed on any thread, changes only on the
    thread that owns the log. Without `create` the file must exist when it is first used.
    """

    __slots__ = ("_disk", "_identity", "_is_closed", "handle", "is_unsynced", "is_used", "path")

    def __init__(self, disk: "Disk", path: str, *, create: bool = False) -> None:
        self.path = path
        """The current name; to be set before the file is renamed."""
        self.handle: File | None = None
        """The open file, if it is open. A caller that uses it must refer to it until then."""
        self.is_used = False
        self.is_unsynced = False
        """Whether the file was written since its last sync. To be set after each write."""
        self._disk = disk
        self._identity: Hashable = None
        self._is_closed = False
        if create:
            self._open(create=True, must_cache=False)

    def __repr__(self) -> str:
        return f"CachedFile({self.path!r})"

    # --- open and close

    def pin(self) -> "Descriptor":
        """Returns the descriptor, which stays open for as long as the caller refers to it.

        Raises `ValueError` if the file is closed.
        """
        handle = self.handle
        if handle is None:
            return self._open().pin()
        self.is_used = True
        return handle.pin()

    def fileno(self) -> int:
        """Not usable: the number may belong to another file by the time it is used; see `pin`."""
        raise ValueError("the number of the descriptor is only valid while it is pinned")

    def opened(self) -> "File":
        """Returns the open file, for several reads; it stays open while the caller refers to it."""
        handle = self.handle
        if handle is None:
            try:
                return self._open()
            except ValueError:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path) from None
        self.is_used = True
        return handle

    def open_to_write(self) -> "File":
        """Opens the file so that it stays open; raises EMFILE if there is no room for it."""
        return self._open(must_cache=True)

    def _open(self, *, create: bool = False, must_cache: bool = False) -> "File":
        handle = self._open_current(create=create)
        self.handle = handle
        cache = self._disk.file_cache
        if not cache.add(self):
            self.handle = None
            if must_cache:
                del handle  # or the traceback would keep it open
                raise OSError(
                    errno.EMFILE,
                    f"all {cache.limit} files that may stay open have unsynced data",
                    self.path,
                )
        return handle

    def _open_current(self, *, create: bool) -> "File":
        """Opens the file under its name, again if the owner of the log renames it concurrently."""
        while True:
            if self._is_closed:
                raise ValueError(f"{self.path} is closed")
            path = self.path
            try:
                handle = self._disk.open(path, create=create)
            except FileNotFoundError:
                if self.path == path:
                    raise
                continue
            identity = handle.identity()
            if self._identity is None:
                self._identity = identity
            if identity == self._identity:
                return handle
            handle.close()
            if self.path == path:
                raise FileNotFoundError(errno.ENOENT, "the file was replaced by another", path)

    def release(self) -> bool:
        """Closes the handle unless there are unsynced writes. Called by the cache."""
        if self.is_unsynced:
            return False
        handle, self.handle = self.handle, None
        # The owner may have written in between: it sets the flag, then looks at the handle.
        if self.is_unsynced:
            self.handle = handle
            return False
        return True

    def keep(self, handle: "File") -> None:
        """Keeps the handle of a write, if the cache has dropped it concurrently."""
        if self.handle is None:
            self.handle = handle
            self._disk.file_cache.add(self)

    def close(self) -> None:
        """Closes the file permanently; a thread that is using it finishes first."""
        self._is_closed = True
        self.handle = None
        self.is_unsynced = False
        self._disk.file_cache.discard(self)

    # --- reads

    def read_at(self, position: int, size: int) -> bytes:
        """Returns `size` bytes; fewer only at the end of the file."""
        handle = self.handle
        if handle is None:
            return self.opened().read_at(position, size)
        self.is_used = True
        return handle.read_at(position, size)

    def is_cached(self, position: int, size: int) -> bool:
        """Returns whether the bytes are probably in memory, so that a read does not block."""
        return self.opened().is_cached(position, size)

    def size(self) -> int:
        return self.opened().size()

    def identity(self) -> Hashable:
        return self.opened().identity()

    # --- changes

    def write_at(self, data: Buffer, position: int) -> None:
        """Writes all of `data`. After an `OSError` any part of it may be in the file."""
        handle = self.handle or self.open_to_write()
        try:
            handle.write_at(data, position)
        finally:
            self.is_unsynced = True
            if self.handle is not handle:
                self.keep(handle)

    def truncate(self, size: int) -> None:
        self.opened().truncate(size)

    def reserve(self, size: int) -> None:
        """Allocates blocks up to `size`, growing the file to it (`preallocate`)."""
        self.opened().reserve(size)

    def allocate(self, position: int, size: int) -> None:
        """See `File.allocate`."""
        self.opened().allocate(position, size)

    def sync(self) -> None:
        """Returns when the file's bytes and size are durable. May run on any thread."""
        handle = self.handle
        if handle is None:
            # This process has not written it since the last sync; an earlier one may have.
            self.opened().sync()
            return
        self.is_unsynced = False
        try:
            handle.sync()
        except BaseException:
            self.is_unsynced = True
            raise
        self._disk.file_cache.notify_synced()
