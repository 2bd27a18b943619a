"""Declaration of messages: wire types, `wire()` for a field's versions, `INFO` for the message.

    class FetchPartition(Struct):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, wire("9+", ignorable=True)] = -1

The annotation is the wire type: `Int8` to `Int64`, `UInt16`, `UInt32`, `bool`, `float`, `str`,
`bytes`, `UUID`, `Records`, another `Struct`, or a `list` of one of these; `X | None` if the field
is nullable. A field without `wire()` exists in every version. Every field has a default, which is
its value in versions that lack the field.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar, Final, Protocol, TypeAlias
from uuid import UUID

import msgspec

from penstock.protocol.versions import ALL_VERSIONS, VersionRange

ZERO_UUID: Final = UUID(int=0)
"""Kafka's null value of a UUID, which is never null on the wire."""


class Scalar(Enum):
    """A primitive wire type; the value is its `struct` code if its size is fixed."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


class RecordsRange(Protocol):
    """Record batches that are sent from elsewhere, such as a range of a file.

    `encode_parts` returns the object itself as one of the parts, so that the connection can send
    it with `sendfile`.
    """

    @property
    def size(self) -> int:
        """Number of bytes that it sends."""
        ...


Int8: TypeAlias = Annotated[int, Scalar.INT8]
Int16: TypeAlias = Annotated[int, Scalar.INT16]
Int32: TypeAlias = Annotated[int, Scalar.INT32]
Int64: TypeAlias = Annotated[int, Scalar.INT64]
UInt16: TypeAlias = Annotated[int, Scalar.UINT16]
UInt32: TypeAlias = Annotated[int, Scalar.UINT32]

Records: TypeAlias = Annotated[bytes | memoryview, Scalar.RECORDS]
"""Record batches: decoded as a slice of the input, never copied or read."""

RecordsOrRange: TypeAlias = Annotated[bytes | memoryview | RecordsRange, Scalar.RECORDS]
"""Record batches in a response, which may be a range of a file. Decoded as a memoryview."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The wire properties of a field, as declared by `wire()`."""

    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    ignorable: bool
    flexible: bool


def wire(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> Wire:
    """Declares the `versions` of its message in which a field is sent.

    `nullable`: the versions in which an `X | None` field may be null, if not all.
    `tag`: the field is sent as this tagged field, and only if it differs from its default.
    `ignorable`: encoding a version without the field drops its value silently; otherwise encoding
    raises an error unless the value is the default.
    `flexible=False`: the length keeps its old format in flexible versions.
    """
    return Wire(
        VersionRange.parse(versions),
        None if nullable is None else VersionRange.parse(nullable),
        tag,
        ignorable,
        flexible,
    )


EVERY_VERSION: Final = Wire(ALL_VERSIONS, None, None, False, True)


class Kind(Enum):
    """The purpose of a message."""

    REQUEST = "request"
    RESPONSE = "response"
    HEADER = "header"
    DATA = "data"
    RECORD_KEY = "record key"
    RECORD_VALUE = "record value"
    METADATA_RECORD = "metadata record"


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """The properties of a message.

    `key` is the API key of a request or response, or the record type of a record's key or value.
    `unstable` versions have a codec but are not advertised.
    """

    kind: Kind
    key: int | None
    versions: VersionRange
    flexible: VersionRange
    unstable: VersionRange

    @property
    def max_stable_version(self) -> int:
        high = self.versions.high
        return self.unstable.low - 1 if high in self.unstable else high


def request(
    key: int, *, versions: str, flexible: str = "none", unstable: str = "none"
) -> MessageInfo:
    return _info(Kind.REQUEST, key, versions, flexible, unstable)


def response(
    key: int, *, versions: str, flexible: str = "none", unstable: str = "none"
) -> MessageInfo:
    return _info(Kind.RESPONSE, key, versions, flexible, unstable)


def header(*, versions: str, flexible: str = "none") -> MessageInfo:
    return _info(Kind.HEADER, None, versions, flexible)


def data(*, versions: str, flexible: str = "none") -> MessageInfo:
    """Declares a message that is embedded in the bytes of another one."""
    return _info(Kind.DATA, None, versions, flexible)


def record_key(record_type: int) -> MessageInfo:
    """Declares the key of a record in an internal topic; the type identifies the record."""
    return _info(Kind.RECORD_KEY, record_type, "0", "none")


def record_value(record_type: int, *, versions: str, flexible: str = "none") -> MessageInfo:
    return _info(Kind.RECORD_VALUE, record_type, versions, flexible)


def metadata_record(record_type: int, *, versions: str = "0") -> MessageInfo:
    """Declares a record of the log of a KRaft controller."""
    return _info(Kind.METADATA_RECORD, record_type, versions, "0+")


def _info(
    kind: Kind, key: int | None, versions: str, flexible: str, unstable: str = "none"
) -> MessageInfo:
    return MessageInfo(
        kind,
        key,
        VersionRange.parse(versions),
        VersionRange.parse(flexible),
        VersionRange.parse(unstable),
    )


class Struct(msgspec.Struct, gc=False):
    """Part of a message. Structs never form cycles, so the garbage collector ignores them."""


class Message(Struct):
    """A message with versions, which `codec` encodes and decodes."""

    INFO: ClassVar[MessageInfo]


__all__ = [
    "EVERY_VERSION",
    "ZERO_UUID",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Kind",
    "Message",
    "MessageInfo",
    "Records",
    "RecordsOrRange",
    "RecordsRange",
    "Scalar",
    "Struct",
    "UInt16",
    "UInt32",
    "Wire",
    "data",
    "header",
    "record_key",
    "record_value",
    "request",
    "response",
    "wire",
]
