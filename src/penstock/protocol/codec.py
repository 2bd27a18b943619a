"""Messages to bytes and back. The codec of a message version is compiled when first used.

    request, end = decode(ProduceRequest, 9, frame, position)
    parts = encode_parts(response, 9)

Invalid bytes and invalid values raise ProtocolError. A version that a message does not have, or
that lacks a field which is set, raises UnsupportedVersionError.
"""

from typing import Any, TypeVar, cast

from penstock.core.errors import UnsupportedVersionError
from penstock.protocol.decoder import UNLIMITED, Decoder, compile_decoder
from penstock.protocol.encoder import Encoder, Part, compile_encoder
from penstock.protocol.fields import Message

M = TypeVar("M", bound=Message)

# The value type depends on the class in the key, which a dict type cannot express.
_decoders: dict[tuple[type[Message], int], Any] = {}
_encoders: dict[tuple[type[Message], int], Any] = {}


def decode(
    cls: type[M],
    version: int,
    buffer: bytes | bytearray | memoryview,
    position: int = 0,
    max_elements: int = UNLIMITED,
) -> tuple[M, int]:
    """Decodes the message at `position`; returns it and the position after it.

    `records` fields are slices of `buffer` and keep it alive; everything else is copied. Bytes
    after the message are ignored. Raises TooManyElementsError if the arrays of the message have
    more than `max_elements` elements together.
    """
    try:
        run: Decoder[M] = _decoders[cls, version]
    except KeyError:
        run = decoder(cls, version)
    return run(memoryview(buffer), position, max_elements)


def encode(message: Message, version: int) -> bytes:
    """Returns the encoded message. Use `encode_parts` for records that are ranges of a file."""
    parts = encode_parts(message, version)
    first = parts[0]
    if len(parts) == 1 and isinstance(first, bytes):
        return first
    try:
        return b"".join(cast("list[bytes]", parts))
    except TypeError:
        name = type(message).__name__
        raise TypeError(f"{name} has records that are not bytes: use encode_parts") from None


def encode_parts(message: Message, version: int, max_elements: int = UNLIMITED) -> list[Part]:
    """Returns the encoded message in parts, to be sent in order.

    Record batches are separate parts, and they are the objects that the message has: views are not
    copied, and the connection sends a `RecordsRange` itself. Raises TooManyElementsError if the
    arrays of the message have more than `max_elements` elements together.
    """
    cls = type(message)
    try:
        run: Encoder[Message] = _encoders[cls, version]
    except KeyError:
        run = encoder(cls, version)
    return run(message, max_elements)


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """Returns the compiled function behind `decode`, for callers that use it repeatedly."""
    _check(cls, version)
    if (cls, version) not in _decoders:
        _decoders[cls, version] = compile_decoder(cls, version)
    run: Decoder[M] = _decoders[cls, version]
    return run


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """Returns the compiled function behind `encode_parts`."""
    _check(cls, version)
    if (cls, version) not in _encoders:
        _encoders[cls, version] = compile_encoder(cls, version)
    run: Encoder[M] = _encoders[cls, version]
    return run


def _check(cls: type[Message], version: int) -> None:
    if version not in cls.INFO.versions:
        raise UnsupportedVersionError(
            f"{cls.__name__} has versions {cls.INFO.versions}, not {version}",
            remedy="use one of these",
        )
