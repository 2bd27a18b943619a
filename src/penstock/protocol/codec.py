"""Messages to bytes and back. The codec of a message version is compiled when first used.

    request, end = decode(ProduceRequest, 9, frame, position)
    parts = encode_parts(response, 9)

Whatever is wrong with bytes is a ProtocolError, whatever is wrong with a value too; a version that
a message does not have, or that cannot carry a field, is an UnsupportedVersionError.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.core.errors import UnsupportedVersionError
from penstock.protocol.decoder import compile_decoder
from penstock.protocol.encoder import Part, compile_encoder
from penstock.protocol.fields import Message

M = TypeVar("M", bound=Message)
Decoder = Callable[[memoryview, int], tuple[M, int]]
Encoder = Callable[[M], list[Part]]

# What a class and version lead to depends on the class, which the type of a dict cannot say.
_decoders: dict[tuple[type[Message], int], Any] = {}
_encoders: dict[tuple[type[Message], int], Any] = {}


def decode(
    cls: type[M], version: int, buffer: bytes | bytearray | memoryview, position: int = 0
) -> tuple[M, int]:
    """Read a message that starts at `position`; return it and the position after it.

    `records` fields are slices of `buffer` and keep it alive; everything else is copied out. Bytes
    after the message are the caller's business.
    """
    try:
        run: Decoder[M] = _decoders[cls, version]
    except KeyError:
        run = decoder(cls, version)
    return run(memoryview(buffer), position)


def encode(message: Message, version: int) -> bytes:
    """The message as bytes of one piece. Records that lie in a file need `encode_parts`."""
    parts = encode_parts(message, version)
    first = parts[0]
    if len(parts) == 1 and isinstance(first, bytes):
        return first
    try:
        return b"".join(cast("list[bytes]", parts))
    except TypeError:
        name = type(message).__name__
        raise TypeError(f"{name} holds records that lie elsewhere: use encode_parts") from None


def encode_parts(message: Message, version: int) -> list[Part]:
    """The message in parts, to be sent one after the other.

    Record batches are parts of their own and are the very objects that the message holds: views
    are not copied, and a `RecordsRange` is left for the connection to send.
    """
    cls = type(message)
    try:
        run: Encoder[Message] = _encoders[cls, version]
    except KeyError:
        run = encoder(cls, version)
    return run(message)


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The compiled function behind `decode`, for a caller that uses it again and again."""
    _check(cls, version)
    if (cls, version) not in _decoders:
        _decoders[cls, version] = compile_decoder(cls, version)
    found: Decoder[M] = _decoders[cls, version]
    return found


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """The compiled function behind `encode_parts`."""
    _check(cls, version)
    if (cls, version) not in _encoders:
        _encoders[cls, version] = compile_encoder(cls, version)
    found: Encoder[M] = _encoders[cls, version]
    return found


def _check(cls: type[Message], version: int) -> None:
    if version not in cls.INFO.versions:
        raise UnsupportedVersionError(
            f"{cls.__name__} has versions {cls.INFO.versions}, not {version}: use one of these"
        )
