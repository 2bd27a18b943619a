"""Finding the frames (requests or responses) in a stream of bytes. Does no I/O."""

import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">i")


class FrameGate:
    """Passes a stream of frames until one of them is refused; then it is shut.

    `passes` is called for each frame with its first `head_size` bytes, or fewer if the frame is
    shorter. The start of a frame is held back until these bytes have arrived.
    """

    def __init__(self, head_size: int, passes: Callable[[bytes], bool]) -> None:
        self._head_size = head_size
        self._passes = passes
        self._held = b""
        self._remaining = 0
        """The bytes of the current frame that have not arrived yet."""
        self._is_opaque = False
        """Whether the stream is not Kafka's protocol and passes unseen."""
        self.is_shut = False

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes that may pass now."""
        if self._is_opaque or self.is_shut:
            return b"" if self.is_shut else data
        if self._remaining >= len(data):
            self._remaining -= len(data)
            return data
        if self._held:
            data = self._held + data
            self._held = b""
        position = self._remaining
        while position < len(data):
            body = position + _LENGTH.size
            if body > len(data):
                return self._hold(data, position)
            (length,) = _LENGTH.unpack_from(data, position)
            if length < 0:  # not Kafka's protocol: the broker reports it
                self._is_opaque = True
                return data
            head_size = min(length, self._head_size)
            if body + head_size > len(data):
                return self._hold(data, position)
            if not self._passes(data[body : body + head_size]):
                self.is_shut = True
                return data[:position]
            position = body + length
        self._remaining = position - len(data)
        return data

    def rest(self) -> bytes:
        """Returns the bytes that are held back, at the end of the stream."""
        return b"" if self.is_shut else self._held

    def _hold(self, data: bytes, position: int) -> bytes:
        self._held = data[position:]
        self._remaining = 0
        return data[:position]
