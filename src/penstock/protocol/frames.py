"""Framing of messages on a connection: a length, a header, a body. No I/O.

A frame is what follows the four bytes of the length: RequestHeader and request, or ResponseHeader
and response. Encoding returns a list of parts that starts with the length.
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
"""Kafka's default of `socket.request.max.bytes`."""

_LENGTH = struct.Struct(">i")
_KEY_AND_VERSION = struct.Struct(">hh")
_LENGTH_AND_HEADER_0 = struct.Struct(">ii")
_LENGTH_AND_HEADER_1 = struct.Struct(">iix")

M = TypeVar("M", bound=Message)


class FrameSplitter:
    """Splits a stream of bytes into frames.

    It allocates no more than the bytes that arrive, whatever length a frame claims. A length that
    is negative or above `max_size` raises ProtocolError; the stream cannot be used after that.
    """

    def __init__(self, max_size: int = DEFAULT_MAX_FRAME) -> None:
        self._max_size = max_size
        self._partial = bytearray()
        """The start of an incomplete frame, including its length."""

    def feed(self, data: bytes) -> list[memoryview]:
        """Adds bytes of the stream; returns the frames that are complete now, in order.

        A frame may be a view of `data`, so `data` must not change afterwards.
        """
        frames: list[memoryview] = []
        position = 0
        if self._partial:
            position = self._complete(data, frames)
            if position == len(data):
                return frames
        view = memoryview(data)
        while len(data) - position >= _LENGTH.size:
            end = position + _LENGTH.size + self._length(data, position)
            if end > len(data):
                break
            frames.append(view[position + _LENGTH.size : end])
            position = end
        self._partial += view[position:]
        return frames

    @property
    def buffered(self) -> int:
        """Size of the incomplete frame."""
        return len(self._partial)

    def _complete(self, data: bytes, frames: list[memoryview]) -> int:
        """Adds to the incomplete frame; returns how many bytes of `data` belong to it."""
        partial = self._partial
        taken = max(0, min(_LENGTH.size - len(partial), len(data)))
        partial += data[:taken]
        if len(partial) < _LENGTH.size:
            return taken
        missing = _LENGTH.size + self._length(partial, 0) - len(partial)
        end = min(taken + missing, len(data))
        partial += memoryview(data)[taken:end]
        if end - taken == missing:
            frames.append(memoryview(partial)[_LENGTH.size :])
            self._partial = bytearray()
        return end

    def _length(self, data: bytes | bytearray, position: int) -> int:
        length: int = _LENGTH.unpack_from(data, position)[0]
        if not 0 <= length <= self._max_size:
            raise ProtocolError(
                f"a message claims {length} bytes, but at most {self._max_size} are accepted: "
                "either the peer does not speak Kafka's protocol, or socket.request.max.bytes is "
                "too low"
            )
        return length


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Decodes the header of a request; returns it and the position of the request.

    The header is readable in any version of a known API, so that the response can list the
    supported versions. Raises UnsupportedVersionError for a key that Kafka does not have.
    """
    try:
        key, version = _KEY_AND_VERSION.unpack_from(frame)
    except struct.error:
        raise ProtocolError(f"{len(frame)} bytes are too few for a request header") from None
    return decode(RequestHeader, api(key).request_header_version(version), frame)


def decode_response(
    cls: type[M], version: int, frame: bytes | memoryview
) -> tuple[ResponseHeader, M]:
    """Decodes a response: the header with the correlation id, and the body.

    `version` is that of the request.
    """
    header_version = _api_of(cls).response_header_version(version)
    header, position = decode(ResponseHeader, header_version, frame)
    message, _ = decode(cls, version, frame, position)
    return header, message


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Part]:
    """Returns length, header and body of a request, in parts to be sent in order."""
    api_of_message = _api_of(type(message))
    header = encode(
        RequestHeader(api_of_message.key, version, correlation_id, client_id),
        api_of_message.request_header_version(version),
    )
    parts = encode_parts(message, version)
    length = len(header) + sum(map(size_of, parts))
    return _with_prefix(_LENGTH.pack(length) + header, parts)


def encode_response(message: Message, version: int, correlation_id: int) -> list[Part]:
    """Returns length, header and body of a response, in parts to be sent in order.

    Record batches are separate parts: see `encode_parts`.
    """
    parts = encode_parts(message, version)
    # ResponseHeader, packed together with the length: version 1 has an empty tag section.
    flexible = _api_of(type(message)).response_header_version(version) == 1
    layout = _LENGTH_AND_HEADER_1 if flexible else _LENGTH_AND_HEADER_0
    length = layout.size - _LENGTH.size + sum(map(size_of, parts))
    return _with_prefix(layout.pack(length, correlation_id), parts)


def _with_prefix(prefix: bytes, parts: list[Part]) -> list[Part]:
    # The first part is always bytes of the encoder, because records come after their length.
    parts[0] = prefix + cast("bytes", parts[0])
    return parts


@cache
def _api_of(cls: type[Message]) -> Api:
    key = cls.INFO.key
    if key is None or cls.INFO.kind not in (Kind.REQUEST, Kind.RESPONSE):
        raise TypeError(f"{cls.__name__} is neither a request nor a response")
    return api(key)
