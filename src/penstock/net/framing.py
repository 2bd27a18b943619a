"""The stream of a connection, cut into frames. Bytes in, frames out, no I/O.

The owner of the socket receives into `FrameReader.buffer()` and passes the number of bytes to
`feed`. Small frames arrive in one buffer that all connections share and are copied out together; a
large one gets memory of its own, which the rest of it is received into, without a second copy.
"""

import struct
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from penstock.core.errors import ProtocolError

SCRATCH_SIZE: Final = 256 * 1024
SMALL_FRAME: Final = 16 * 1024
"""Up to here an incomplete frame waits as bytes and is put in front of those that come next."""
_FIRST: Final = 64 * 1024
_SPARE_SIZE: Final = 2 * 1024 * 1024
MAX_AHEAD: Final = _SPARE_SIZE
"""Memory given to a frame before its bytes came is no more than this, and than thrice what came."""
_MAPPED_STEP: Final = 64 * 1024
"""Bytes of a frame above `_SPARE_SIZE` that are received at once, into a mapping of its whole size,
whose pages the kernel adds as bytes come. 256 KiB take 0.15 to 0.3 ms, most of it for page faults;
a bytearray that grows may be copied each time, 1 ms up to 256 KiB and 3 to 8 ms for 14 MB."""
_SPARES: Final = 4

_length = struct.Struct(">i").unpack_from


class FrameMemory:
    """Memory that connections of one event loop share: the receive buffer and spare frames."""

    __slots__ = ("_spares", "_trusts", "head", "input", "scratch", "view")

    def __init__(self, *, trusts: bool = False) -> None:
        """With `trusts`, a frame gets all the memory that it says it needs at once."""
        self._trusts = trusts
        self.scratch = bytearray(SCRATCH_SIZE)
        self.view = memoryview(self.scratch)
        self.head = self.view[:SMALL_FRAME]
        self.input = self.view
        """The part of the receive buffer that is offered to connections."""
        self._spares: list[bytearray] = []

    def set_pressure(self, is_tight: bool) -> None:
        """While memory is tight, a connection receives little before its request is admitted."""
        self.input = self.head if is_tight else self.view

    def take(self, size: int, came: int) -> bytearray:
        """Memory for a frame of `size` bytes of which `came` are there; it may be less."""
        for index, spare in enumerate(self._spares):
            if len(spare) >= size and _is_free(spare):
                return self._spares.pop(index)
        return bytearray(size if self._trusts else min(size, max(_FIRST, 4 * came)))

    def take_mapping(self, size: int) -> mmap | None:
        """Returns a mapping for a frame that is too large for a spare; None for others.

        Raises ProtocolError if the process can have no more mappings.
        """
        if size <= _SPARE_SIZE or self._trusts:
            return None
        try:
            return mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)
        except OSError as error:
            raise ProtocolError(f"no memory for a request of {size} bytes: {error}") from None

    def give(self, memory: bytearray) -> None:
        """Keep the memory of a frame that was handed out, to be used again once nobody views it.

        Large requests tend to have about the same size, and memory that was used is in the
        processor's caches and needs no page faults: what was used last comes first.
        """
        if len(memory) <= _SPARE_SIZE:
            if len(self._spares) == _SPARES:
                self._spares.pop()
            self._spares.insert(0, memory)


def _is_free(memory: bytearray) -> bool:
    """Whether no view of it is left: as long as there is one, a bytearray refuses to be resized."""
    try:
        memory.append(0)
    except BufferError:
        return False
    memory.pop()
    return True


def _admit_none(size: int) -> bool:
    return False


class FrameReader:
    """The frames of one connection. A frame is what follows the four bytes of its length.

    `admit` is called with the size of each frame that needs memory of its own. If it returns False,
    the frame waits: nothing may be fed until `begin_waiting` was called.
    """

    __slots__ = (
        "_admit",
        "_after_large",
        "_came",
        "_memory",
        "_own",
        "_rest",
        "_size",
        "_tail",
        "begun_frames",
        "max_size",
    )

    def __init__(
        self,
        memory: FrameMemory,
        max_size: int,
        admit: Callable[[int], bool] = lambda size: True,
    ) -> None:
        self.max_size = max_size
        self.begun_frames = 0
        """The number of frames that have got memory of their own."""
        self._admit = admit
        self._memory = memory
        self._tail: bytes | None = None
        self._own: bytearray | mmap | None = None
        self._after_large = False
        self._rest = memory.view
        self._came = 0
        self._size = 0

    @property
    def allocated(self) -> int:
        """Bytes of memory held for a frame that is not complete."""
        own = self._own
        used = self._came if isinstance(own, mmap) else len(own or b"")
        return used + len(self._tail or b"")

    @property
    def begun(self) -> bool:
        """Whether a part of a frame has come."""
        return self._own is not None or self._tail is not None

    @property
    def large(self) -> bool:
        """Whether a frame with memory of its own is being received."""
        return self._own is not None

    @property
    def reads_on(self) -> bool:
        """Whether the rest of a frame should be received before other connections are served."""
        return isinstance(self._own, bytearray)

    @property
    def came(self) -> int:
        """How many bytes of the current large frame have come."""
        return self._came if self._own is not None else 0

    @property
    def size(self) -> int:
        """The size of the current large frame."""
        return self._size

    def begin_waiting(self) -> None:
        """Begins the frame for which `admit` returned False."""
        tail = self._tail
        assert tail is not None
        self._tail = None
        self._begin(_length(tail)[0], memoryview(tail)[4:])

    def release(self) -> None:
        """Lets go of a frame that will never be whole."""
        self._own = None
        self._tail = None
        self._rest = self._memory.view

    def close(self) -> None:
        """Like `release`, at the end of the connection, to which it does not refer any more."""
        self.release()
        self._admit = _admit_none

    def buffer(self) -> memoryview:
        """Where the next bytes go. To be filled and fed before any other connection's."""
        if self._own is not None:
            return self._rest
        tail = self._tail
        if tail is None:
            # After a large frame comes another, as a rule: its start is enough to know, and the
            # rest need not be copied.
            return self._memory.head if self._after_large else self._memory.input
        view = self._memory.view
        view[: len(tail)] = tail
        return view[len(tail) :]

    def feed(self, count: int) -> list[memoryview]:
        """Take `count` bytes that were put into `buffer`; return the frames that are whole now.

        Frames are writable and keep their bytes for as long as they are referred to. Raises
        ProtocolError for a length that is negative or above `max_size`; the stream is lost then.
        """
        if self._own is not None:
            return self._feed_own(count)
        if self._tail is not None:
            count += len(self._tail)
            self._tail = None
        scratch = self._memory.view
        ends: list[int] = []
        position = 0
        while count - position >= 4:
            size = _length(scratch, position)[0]
            if not 0 <= size <= self.max_size:
                raise self._refusal(size)
            end = position + 4 + size
            if end > count:
                if size > SMALL_FRAME:
                    if not self._admit(size):
                        break
                    self._begin(size, scratch[position + 4 : count])
                    return self._cut(position, ends)
                break
            ends.append(end)
            position = end
            self._after_large = False
        if position < count:
            self._tail = bytes(scratch[position:count])
        if len(ends) == 1 and position < _FIRST:
            return [memoryview(bytearray(scratch[4:position]))]
        return self._cut(position, ends)

    def _cut(self, size: int, ends: list[int]) -> list[memoryview]:
        """Copy the frames that end there out of the start of the shared buffer."""
        if not ends:
            return []
        scratch = self._memory.view[:size]
        if size < _FIRST:
            chunk = memoryview(bytearray(scratch))
        else:
            memory = self._memory.take(size, size)
            memory[:size] = scratch
            self._memory.give(memory)
            chunk = memoryview(memory)
        frames = []
        start = 4
        for end in ends:
            frames.append(chunk[start:end])
            start = end + 4
        return frames

    def _begin(self, size: int, begun: memoryview) -> None:
        came = len(begun)
        own = self._memory.take_mapping(size) or self._memory.take(size, came)
        own[:came] = begun
        self._own = own
        self.begun_frames += 1
        self._size = size
        self._came = came
        self._rest = self._next_part(own)

    def _feed_own(self, count: int) -> list[memoryview]:
        own = self._own
        assert own is not None
        self._came = came = self._came + count
        self._rest = self._memory.view
        if came == self._size:
            self._own = None
            self._after_large = True
            if isinstance(own, bytearray):
                self._memory.give(own)
            return [memoryview(own)[:came]]
        if isinstance(own, bytearray) and came == len(own):
            # Nothing views it: `buffer` gave out `_rest` only for the time of one receive.
            own += bytes(min(self._size - came, 3 * came))
        self._rest = self._next_part(own)
        return []

    def _next_part(self, own: bytearray | mmap) -> memoryview:
        """Returns where the next bytes of a frame with memory of its own go."""
        end = self._came + _MAPPED_STEP if isinstance(own, mmap) else len(own)
        return memoryview(own)[self._came : min(self._size, end)]

    def _refusal(self, size: int) -> ProtocolError:
        return ProtocolError(
            f"a request claims {size} bytes, at most {self.max_size} are accepted: either the "
            "client does not speak Kafka's protocol or uses another security.protocol than this "
            "listener, or socket.request.max.bytes must be raised"
        )
