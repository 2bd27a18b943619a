"""Messages with a version prefix of two bytes.

They occur in Kafka's internal topics and inside other messages: record values, consumer
subscriptions, transaction markers. The key of a record in `__consumer_offsets`,
`__transaction_state` or `__share_group_state` has the type of the record as its prefix instead, and
only one version.
"""

import struct
from typing import TypeVar

from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Kind, Message

M = TypeVar("M", bound=Message)
_PREFIX = struct.Struct(">h")


def encode_versioned(message: Message, version: int) -> bytes:
    """Returns the version prefix and the encoded message."""
    return _PREFIX.pack(version) + encode(message, version)


def decode_versioned(cls: type[M], buffer: bytes | memoryview) -> tuple[M, int]:
    """Decodes a message with a version prefix; returns the message and the version.

    Raises UnsupportedVersionError if the message does not have this version.
    """
    version = read_prefix(buffer)
    message, _ = decode(cls, version, buffer, _PREFIX.size)
    return message, version


def encode_record_key(key: Message) -> bytes:
    """Returns the record type and the encoded key."""
    return _PREFIX.pack(_record_type(type(key))) + encode(key, 0)


def decode_record_key(cls: type[M], buffer: bytes | memoryview) -> M:
    """Decodes the key of a record. Raises ProtocolError if its type is not that of `cls`."""
    record_type = read_prefix(buffer)
    if record_type != _record_type(cls):
        raise ProtocolError(f"a record of type {record_type} is not a {cls.__name__}")
    key, _ = decode(cls, 0, buffer, _PREFIX.size)
    return key


def read_prefix(buffer: bytes | memoryview) -> int:
    """Returns the version prefix of a message, or the type prefix of a record key."""
    try:
        prefix: int = _PREFIX.unpack_from(buffer)[0]
    except struct.error:
        raise ProtocolError(f"{len(buffer)} bytes are too few for a version") from None
    return prefix


def _record_type(cls: type[Message]) -> int:
    key = cls.INFO.key
    if cls.INFO.kind is not Kind.RECORD_KEY or key is None:
        raise TypeError(f"{cls.__name__} is not the key of a record")
    return key
