"""The inodes of a `CrashDisk`: their written state, their durable state, and the effect of a crash.

A node has its durable state and the changes since. `after_crash` returns the node that a machine
would have after a power failure: with none of those changes, all of them, or some.

"Some" is more than any one file system does, and everything that POSIX allows:

- the bytes of a file: the first few of its writes, the last of them cut anywhere; or any mixture
  of old and new 512-byte sectors (4 KiB pages if the file was mapped), with zeros in place of
  the sectors that a file has grown by and that never reached the disk;
- the names in a directory: the first few of its changes, in their order, independently of the
  files' bytes and of other directories.
"""

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

SECTOR = 512
PAGE = 4096


class CrashMode(Enum):
    """Which changes since the last sync a crash leaves."""

    DURABLE = "durable"
    WRITTEN = "written"
    TORN = "torn"


class Write(NamedTuple):
    position: int
    data: bytes


class Resize(NamedTuple):
    size: int


class FileNode:
    """The bytes of a file."""

    __slots__ = ("_data", "_lost", "durable", "mapped", "mappings", "modified_ms", "pending")

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.durable = content
        self._data: bytearray | None = None
        self.pending: list[Write | Resize] = []
        self.mapped = False
        """Whether it may have been changed through a mapping since the last sync."""
        self.mappings = 0
        """How many mappings of it are open: each may be written to unseen at any moment."""
        self.modified_ms = modified_ms
        self._lost: bytes | None = None
        """The bytes as they were when a sync failed last, if some of them are not durable since."""

    @property
    def data(self) -> bytearray:
        """The bytes as written, to be changed in place: a mapping holds on to this object."""
        if self._data is None:
            self._data = bytearray(self.durable)
        return self._data

    @property
    def size(self) -> int:
        return len(self.durable if self._data is None else self._data)

    def read(self, position: int, size: int) -> bytes:
        content = self.durable if self._data is None else self._data
        return bytes(content[position : position + size])

    def write(self, position: int, data: bytes) -> None:
        self.pending.append(Write(position, data))
        _apply(self.data, self.pending[-1])

    def resize(self, size: int) -> None:
        self.pending.append(Resize(size))
        _apply(self.data, self.pending[-1])

    def sync(self) -> None:
        if self.pending or self.mapped:
            self.durable = bytes(self.data) if self._lost is None else self._written_pages()
            if self.durable == self.data:
                self._lost = None
            self.pending.clear()
            self.mapped = self.mappings > 0

    def lose_unsynced(self) -> None:
        """Makes the unsynced pages count as synced, as a kernel does after it reported an error.

        They stay readable; only pages that are written again can still become durable.
        """
        if self.pending or self.mapped:
            self._lost = bytes(self.data)
            self.pending.clear()

    def _written_pages(self) -> bytes:
        """Returns the durable bytes after a sync, without the pages that were lost before."""
        assert self._lost is not None
        size = len(self.data)
        content = bytearray(self.durable[:size].ljust(size, b"\0"))
        written = {
            page
            for change in self.pending
            if isinstance(change, Write)
            for page in range(
                change.position // PAGE, (change.position + len(change.data) - 1) // PAGE + 1
            )
        }
        for page in range(-(-size // PAGE)):
            part = slice(page * PAGE, (page + 1) * PAGE)
            if page in written or self.data[part] != self._lost[part]:
                content[part] = self.data[part]
        return bytes(content)

    def after_crash(self, mode: CrashMode, rng: Random) -> "FileNode":
        return FileNode(self._content_after(mode, rng), self.modified_ms)

    def _content_after(self, mode: CrashMode, rng: Random) -> bytes:
        if mode is CrashMode.WRITTEN:
            return bytes(self.data)
        if mode is CrashMode.DURABLE or not (self.pending or self.mapped):
            return self.durable
        kind = rng.randrange(4)
        if kind == 0:
            return self.durable
        if kind == 1:
            return bytes(self.data)
        if kind == 2 and not self.mapped:
            return self._first_changes(rng)
        return self._mixed_sectors(rng)

    def _first_changes(self, rng: Random) -> bytes:
        content = bytearray(self.durable)
        remaining = rng.randint(0, len(self.pending) - 1)
        for change in self.pending[:remaining]:
            _apply(content, change)
        last = self.pending[remaining]
        if isinstance(last, Write):
            last = Write(last.position, last.data[: rng.randint(0, len(last.data))])
        elif last.size > len(content):
            last = Resize(rng.randint(len(content), last.size))
        _apply(content, last)
        return bytes(content)

    def _mixed_sectors(self, rng: Random) -> bytes:
        old, new = self.durable, self.data
        low, high = sorted((len(old), len(new)))
        size = rng.choice((len(old), len(new), rng.randint(low, high)))
        unit = PAGE if self.mapped else SECTOR
        probability = rng.choice((0.1, 0.5, 0.9))
        content = bytearray(old[:size].ljust(size, b"\0"))
        for start in range(0, size, unit):
            end = min(start + unit, size)
            sector = new[start:end]
            if content[start : start + len(sector)] != sector and rng.random() < probability:
                content[start : start + len(sector)] = sector
        return bytes(content)


def _apply(content: bytearray, change: Write | Resize) -> None:
    if isinstance(change, Resize):
        if change.size < len(content):
            del content[change.size :]
        else:
            content.extend(bytes(change.size - len(content)))
        return
    position, data = change
    if not data:
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


class Link(NamedTuple):
    """A name gets a node, in place of the one it may have had."""

    name: str
    node: "Node"


class Unlink(NamedTuple):
    name: str


class Rename(NamedTuple):
    source: str
    target: str
    node: "Node"


class DirectoryNode:
    """The names in a directory."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.durable: dict[str, Node] = {}
        self.entries: dict[str, Node] = {}
        self.pending: list[Link | Unlink | Rename] = []

    def change(self, change: Link | Unlink | Rename) -> None:
        self.pending.append(change)
        _apply_name(self.entries, change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def after_crash(self, mode: CrashMode, rng: Random) -> "DirectoryNode":
        directory = DirectoryNode()
        for name, node in self._names_after(mode, rng).items():
            directory.entries[name] = node.after_crash(mode, rng)
        directory.sync()
        return directory

    def _names_after(self, mode: CrashMode, rng: Random) -> "dict[str, Node]":
        if mode is CrashMode.WRITTEN:
            return self.entries
        if mode is CrashMode.DURABLE or not self.pending:
            return self.durable
        names = dict(self.durable)
        for change in self.pending[: rng.randint(0, len(self.pending))]:
            _apply_name(names, change)
        return names

    def walk(self) -> "Iterator[Node]":
        """This directory and everything below it."""
        yield self
        for node in self.entries.values():
            if isinstance(node, DirectoryNode):
                yield from node.walk()
            else:
                yield node


Node = FileNode | DirectoryNode


def _apply_name(names: dict[str, Node], change: Link | Unlink | Rename) -> None:
    if isinstance(change, Link):
        names[change.name] = change.node
    elif isinstance(change, Unlink):
        names.pop(change.name, None)
    else:
        names.pop(change.source, None)
        names[change.target] = change.node
