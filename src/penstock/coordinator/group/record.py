"""Records of `__consumer_offsets` as values; `records` has their bytes."""

from typing import NamedTuple

from msgspec import Struct

from penstock.protocol.fields import Message


class Record(Struct, frozen=True, gc=False):
    """Key and value of a record; a value of None is a tombstone."""

    key: Message
    value: Message | None


class RecordType(NamedTuple):
    """How records of one type are stored."""

    record: type[Record]
    key: type[Message]
    value: type[Message]
    value_version: int
    """The version that is written, which is the one that Kafka 4.3 writes."""
