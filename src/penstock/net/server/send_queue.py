"""The send queue of a connection: parts of responses in order, in memory or as ranges of files."""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from penstock.core.buffers import Buffer

MEMORY: Final = (bytes, bytearray, memoryview)
_MAX_BUFFERS: Final = 256
"""Well below Linux's limit of 1024 (IOV_MAX) for one sendmsg."""


class PinnedFile(Protocol):
    """A descriptor that stays open for as long as something refers to this object."""

    def fileno(self) -> int: ...


class SendableFile(Protocol):
    def pin(self) -> PinnedFile:
        """Returns the open file, on any thread; raises ValueError if the file is closed."""
        ...


class FileRange(Protocol):
    """Bytes of a file, sent with `sendfile` where possible."""

    @property
    def file(self) -> SendableFile: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...


Part: TypeAlias = Buffer | FileRange


def bytes_in_memory(parts: Sequence[Part]) -> int:
    """Returns the size of the parts that are not ranges of files."""
    size = 0
    for part in parts:
        if isinstance(part, MEMORY):
            size += len(part)
    return size


class SendQueue:
    """Parts of responses. `unsent` counts the bytes in memory, not those in files."""

    __slots__ = ("files", "parts", "unsent")

    def __init__(self) -> None:
        self.parts: deque[Part] = deque()
        """In order; read-only for others."""
        self.files = 0
        """How many of the parts are ranges of files."""
        self.unsent = 0

    def put(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, MEMORY):
                size = len(part)
                if not size:
                    continue
                self.unsent += size
            elif part.size:
                self.files += 1
            else:
                continue
            self.parts.append(part)

    def file(self) -> FileRange | None:
        """Returns the next part if it is a range of a file, else None."""
        if not self.files:
            return None
        part = self.parts[0]
        return None if isinstance(part, MEMORY) else part

    def replace_file(self, index: int, data: Buffer) -> None:
        """Puts the bytes of a range of a file in its place."""
        self.parts[index] = data
        self.files -= 1
        self.unsent += len(data)

    def file_sent(self) -> None:
        self.files -= 1
        self.parts.popleft()

    def buffers(self) -> tuple[list[Buffer], bool]:
        """Returns the buffers to be sent next, and whether a range of a file follows them."""
        buffers: list[Buffer] = []
        for part in self.parts:
            if not isinstance(part, MEMORY):
                return buffers, True
            buffers.append(part)
            if len(buffers) == _MAX_BUFFERS:
                break
        return buffers, False

    def sent(self, count: int) -> None:
        """Removes `count` bytes that were sent of what `buffers` returned."""
        if count == self.unsent and not self.files:
            self.parts.clear()
            self.unsent = 0
            return
        self.unsent -= count
        parts = self.parts
        while count:
            part = parts.popleft()
            assert isinstance(part, MEMORY)
            size = len(part)
            if size > count:
                parts.appendleft(memoryview(part)[count:])
                return
            count -= size

    def clear(self) -> None:
        self.parts.clear()
        self.files = 0
        self.unsent = 0
