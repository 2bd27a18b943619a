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
from penstock.protocol.decoder import UNLIMITED
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Kind, Message
from penstock.protocol.messages.header import RequestHeader, ResponseHeader
from penstock.protocol.primitives import size_of

MAX_HEADER_TAGS: Final = 100
"""Kafka's clients send none."""

_LENGTH = struct.Struct(">i")
_KEY_AND_VERSION = struct.Struct(">hh")
_LENGTH_AND_HEADER_0 = struct.Struct(">ii")
_LENGTH_AND_HEADER_1 = struct.Struct(">iix")

M = TypeVar("M", bound=Message)


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Decodes the header of a request; returns it and the position of the request.

    The header is readable in any version of a known API, so that the response can list the
    supported versions. Raises UnsupportedVersionError for a key that Kafka does not have, and
    TooManyElementsError for more than `MAX_HEADER_TAGS` tagged fields.
    """
    try:
        key, version = _KEY_AND_VERSION.unpack_from(frame)
    except struct.error:
        raise ProtocolError(f"{len(frame)} bytes are too few for a request header") from None
    header_version = api(key).request_header_version(version)
    return decode(RequestHeader, header_version, frame, 0, MAX_HEADER_TAGS)


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
    message: Message,
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: list[Part] | None = None,
) -> list[Part]:
    """Returns length, header and body of a request, in parts to be sent in order.

    `body` is the message if it has been encoded already.
    """
    api_of_message = _api_of(type(message))
    header = encode(
        RequestHeader(api_of_message.key, version, correlation_id, client_id),
        api_of_message.request_header_version(version),
    )
    parts = encode_parts(message, version) if body is None else body
    length = len(header) + sum(map(size_of, parts))
    return _with_prefix(_LENGTH.pack(length) + header, parts)


def encode_response(
    message: Message, version: int, correlation_id: int, max_elements: int = UNLIMITED
) -> list[Part]:
    """Returns length, header and body of a response, in parts to be sent in order.

    Record batches are separate parts: see `encode_parts`.
    """
    parts = encode_parts(message, version, max_elements)
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
