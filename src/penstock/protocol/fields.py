"""How a message is declared: wire types, `wire()` for a field's versions, `INFO` for the message.

    class FetchPartition(Struct):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, wire("9+", ignorable=True)] = -1

The annotation says the wire type: `Int8` to `Int64`, `UInt16`, `UInt32`, `bool`, `float`, `str`,
`bytes`, `UUID`, `Records`, another `Struct`, or a `list` of one of these; `X | None` where null may
be sent. A field without `wire()` is there in every version. Every field has a default, which is
what a reader sees when the version lacks the field.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar, Final, Protocol, TypeAlias
from uuid import UUID

import msgspec

from penstock.protocol.versions import ALL_VERSIONS, VersionRange

ZERO_UUID: Final = UUID(int=0)
"""Kafka's "no id": a UUID is never null on the wire."""


class Scalar(Enum):
    """A wire type without parts; the value is its `struct` code where its size is fixed."""

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
    """Record batches that lie elsewhere, in a file for instance, and are sent from there.

    A response that holds one is encoded around it: `encode_parts` leaves the object itself in its
    place among the parts, for the connection to `sendfile`.
    """

    @property
    def size(self) -> int:
        """Bytes it will put on the wire."""
        ...


Int8: TypeAlias = Annotated[int, Scalar.INT8]
Int16: TypeAlias = Annotated[int, Scalar.INT16]
Int32: TypeAlias = Annotated[int, Scalar.INT32]
Int64: TypeAlias = Annotated[int, Scalar.INT64]
UInt16: TypeAlias = Annotated[int, Scalar.UINT16]
UInt32: TypeAlias = Annotated[int, Scalar.UINT32]

Records: TypeAlias = Annotated[bytes | memoryview, Scalar.RECORDS]
"""Record batches: decoded as a slice of the input, never copied, never looked into."""

RecordsOrRange: TypeAlias = Annotated[bytes | memoryview | RecordsRange, Scalar.RECORDS]
"""The same in a response, where they may still lie in a file. Decoding gives a memoryview."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What `wire()` says about a field."""

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
    """Say in which `versions` of its message a field is sent.

    `nullable`: the versions in which an `X | None` field may be null, when that is not all of them.
    `tag`: the field is sent as this tagged field, and only when it differs from its default.
    `ignorable`: in versions without the field a value other than the default is silently dropped;
    otherwise encoding refuses it.
    `flexible=False`: the length keeps its old form in flexible versions too.
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
    """What a message is for."""

    REQUEST = "request"
    RESPONSE = "response"
    HEADER = "header"
    DATA = "data"
    RECORD_KEY = "record key"
    RECORD_VALUE = "record value"


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """What holds for a message as a whole.

    `key` is the API key of a request or response, and the record type of a record's key or value.
    `unstable` versions have a codec but are not offered to anyone.
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
    """A message that is neither sent alone nor a record: it travels inside another's bytes."""
    return _info(Kind.DATA, None, versions, flexible)


def record_key(record_type: int) -> MessageInfo:
    """The key of a record in one of Kafka's own topics; its type says what the record is."""
    return _info(Kind.RECORD_KEY, record_type, "0", "none")


def record_value(record_type: int, *, versions: str, flexible: str = "none") -> MessageInfo:
    return _info(Kind.RECORD_VALUE, record_type, versions, flexible)


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
    """Part of a message. Trees of these never form a cycle, so the collector need not look."""


class Message(Struct):
    """A whole message: it has versions, and `codec` encodes and decodes it."""

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
