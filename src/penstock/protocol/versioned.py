"""Messages that say their own version: two bytes in front, then the message.

So they are kept in Kafka's own topics and inside other messages: the value of a record, the
subscription of a consumer, a transaction marker. The key of a record in `__consumer_offsets`,
`__transaction_state` or `__share_group_state` is led by the type of the record instead, and has
one version only.
"""

import struct
from typing import TypeVar

from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Kind, Message

M = TypeVar("M", bound=Message)
_PREFIX = struct.Struct(">h")


def encode_versioned(message: Message, version: int) -> bytes:
    """The version, then the message."""
    return _PREFIX.pack(version) + encode(message, version)


def decode_versioned(cls: type[M], buffer: bytes | memoryview) -> tuple[M, int]:
    """Read the version and the message; return the message and the version.

    A version that the message does not have is an UnsupportedVersionError.
    """
    version = read_prefix(buffer)
    message, _ = decode(cls, version, buffer, _PREFIX.size)
    return message, version


def encode_record_key(key: Message) -> bytes:
    """The type of the record, then its key."""
    return _PREFIX.pack(_record_type(type(key))) + encode(key, 0)


def decode_record_key(cls: type[M], buffer: bytes | memoryview) -> M:
    """Read a key whose type `read_prefix` told; a key of another type is a ProtocolError."""
    found = read_prefix(buffer)
    if found != _record_type(cls):
        raise ProtocolError(f"a record of type {found} is no {cls.__name__}")
    key, _ = decode(cls, 0, buffer, _PREFIX.size)
    return key


def read_prefix(buffer: bytes | memoryview) -> int:
    """The version that leads a message, or the type that leads the key of a record."""
    try:
        prefix: int = _PREFIX.unpack_from(buffer)[0]
    except struct.error:
        raise ProtocolError(f"{len(buffer)} bytes have no room for a version") from None
    return prefix


def _record_type(cls: type[Message]) -> int:
    key = cls.INFO.key
    if cls.INFO.kind is not Kind.RECORD_KEY or key is None:
        raise TypeError(f"{cls.__name__} is not the key of a record")
    return key
