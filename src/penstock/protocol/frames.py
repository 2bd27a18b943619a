"""Messages on a connection: a length, a header, a body. Bytes in, bytes out, no I/O.

A frame is what follows the four bytes of a length. Of a request it is RequestHeader and request, of
a response ResponseHeader and response; what is sent is a list of parts with the length in front.
"""

import struct
from functools import cache
from typing import Final, TypeVar, cast

from penstock.core.errors import ProtocolError
from penstock.protocol.api import Api, api
from penstock.protocol.codec import decode, encode, encode_parts
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Kind, Message
from penstock.protocol.messages.header import RequestHeader, ResponseHeader
from penstock.protocol.primitives import size_of

DEFAULT_MAX_FRAME: Final = 100 * 1024 * 1024
"""`socket.request.max.bytes` as Kafka sets it."""

_LENGTH = struct.Struct(">i")
_KEY_AND_VERSION = struct.Struct(">hh")
_LENGTH_AND_HEADER_0 = struct.Struct(">ii")
_LENGTH_AND_HEADER_1 = struct.Struct(">iix")

M = TypeVar("M", bound=Message)


class FrameSplitter:
    """Cuts a stream of bytes into frames.

    Holds no more than the bytes it was given: a length is believed only as far as bytes arrive, and
    one that is negative or above `max_size` is a ProtocolError, after which the stream is lost.
    """

    def __init__(self, max_size: int = DEFAULT_MAX_FRAME) -> None:
        self._max_size = max_size
        self._begun = bytearray()
        """The beginning of a frame, length included, whose end has not come yet."""

    def feed(self, data: bytes) -> list[memoryview]:
        """Take the next bytes of the stream; return the frames that are whole now, in order.

        A frame that lies within `data` is a view of it, so `data` must not change afterwards.
        """
        frames: list[memoryview] = []
        position = 0
        if self._begun:
            position = self._go_on(data, frames)
            if position == len(data):
                return frames
        view = memoryview(data)
        while len(data) - position >= _LENGTH.size:
            end = position + _LENGTH.size + self._length(data, position)
            if end > len(data):
                break
            frames.append(view[position + _LENGTH.size : end])
            position = end
        self._begun += view[position:]
        return frames

    @property
    def buffered(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._begun)

    def _go_on(self, data: bytes, frames: list[memoryview]) -> int:
        """Add to the frame that has begun; return how much of `data` that took."""
        begun = self._begun
        taken = max(0, min(_LENGTH.size - len(begun), len(data)))
        begun += data[:taken]
        if len(begun) < _LENGTH.size:
            return taken
        missing = _LENGTH.size + self._length(begun, 0) - len(begun)
        end = min(taken + missing, len(data))
        begun += memoryview(data)[taken:end]
        if end - taken == missing:
            frames.append(memoryview(begun)[_LENGTH.size :])
            self._begun = bytearray()
        return end

    def _length(self, data: bytes | bytearray, position: int) -> int:
        length: int = _LENGTH.unpack_from(data, position)[0]
        if not 0 <= length <= self._max_size:
            raise ProtocolError(
                f"a message claims {length} bytes, at most {self._max_size} are accepted: either "
                "the peer speaks no Kafka protocol here, or socket.request.max.bytes is too low"
            )
        return length


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Read the header of a request; return it and where the request starts.

    The header of any version of a known API can be read, so that a client may be told which
    versions there are. A key that Kafka does not have is an UnsupportedVersionError.
    """
    try:
        key, version = _KEY_AND_VERSION.unpack_from(frame)
    except struct.error:
        raise ProtocolError(f"{len(frame)} bytes are too few for a request header") from None
    return decode(RequestHeader, api(key).request_header_version(version), frame)


def decode_response(
    cls: type[M], version: int, frame: bytes | memoryview
) -> tuple[ResponseHeader, M]:
    """Read a whole response: the header, whose correlation id says to which request, and the body.

    `version` is that of the request.
    """
    header_version = _api_of(cls).response_header_version(version)
    header, position = decode(ResponseHeader, header_version, frame)
    message, _ = decode(cls, version, frame, position)
    return header, message


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Part]:
    """A request as it goes over the wire: length, header and body, in parts to send in order."""
    of = _api_of(type(message))
    header = encode(
        RequestHeader(of.key, version, correlation_id, client_id),
        of.request_header_version(version),
    )
    parts = encode_parts(message, version)
    length = len(header) + sum(map(size_of, parts))
    return _led_by(_LENGTH.pack(length) + header, parts)


def encode_response(message: Message, version: int, correlation_id: int) -> list[Part]:
    """A response as it goes over the wire, in parts to send in order.

    Record batches are parts of their own, see `encode_parts`.
    """
    parts = encode_parts(message, version)
    # ResponseHeader, packed together with the length: version 1 has an empty tag section.
    flexible = _api_of(type(message)).response_header_version(version) == 1
    layout = _LENGTH_AND_HEADER_1 if flexible else _LENGTH_AND_HEADER_0
    length = layout.size - _LENGTH.size + sum(map(size_of, parts))
    return _led_by(layout.pack(length, correlation_id), parts)


def _led_by(lead: bytes, parts: list[Part]) -> list[Part]:
    # The first part always is the encoder's own bytes: records come after their length at least.
    parts[0] = lead + cast("bytes", parts[0])
    return parts


@cache
def _api_of(cls: type[Message]) -> Api:
    key = cls.INFO.key
    if key is None or cls.INFO.kind not in (Kind.REQUEST, Kind.RESPONSE):
        raise TypeError(f"{cls.__name__} is neither a request nor a response")
    return api(key)
