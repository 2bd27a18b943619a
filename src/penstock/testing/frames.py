"""Where the requests and answers in a stream begin. Bytes in, bytes out, no I/O."""

import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">i")


class FrameGate:
    """Lets a stream of frames through until one of them is refused.

    `passes` is asked at the start of each frame, with what comes first in it: `head` bytes, or
    fewer where the frame is shorter. Beginnings that are not whole yet are held back.
    """

    def __init__(self, head: int, passes: Callable[[bytes], bool]) -> None:
        self._head = head
        self._passes = passes
        self._begun = b""
        self._left = 0
        """Of the frame that was let in last."""
        self._opaque = False
        self.is_shut = False

    def feed(self, data: bytes) -> bytes:
        """What may go on of the stream; after a frame that was refused nothing does."""
        if self._opaque or self.is_shut:
            return b"" if self.is_shut else data
        if self._left >= len(data):
            self._left -= len(data)
            return data
        if self._begun:
            data = self._begun + data
            self._begun = b""
        position = self._left
        while position < len(data):
            body = position + _LENGTH.size
            if body > len(data):
                return self._hold(data, position)
            (length,) = _LENGTH.unpack_from(data, position)
            if length < 0:  # this is no Kafka protocol: whatever it is, the broker will say so
                self._opaque = True
                return data
            head = min(length, self._head)
            if body + head > len(data):
                return self._hold(data, position)
            if not self._passes(data[body : body + head]):
                self.is_shut = True
                return data[:position]
            position = body + length
        self._left = position - len(data)
        return data

    def rest(self) -> bytes:
        """What was held back of a stream that has ended."""
        return b"" if self.is_shut else self._begun

    def _hold(self, data: bytes, position: int) -> bytes:
        self._begun = data[position:]
        self._left = 0
        return data[:position]
