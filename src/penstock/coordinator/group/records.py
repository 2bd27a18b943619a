"""The records of `__consumer_offsets` that the machine knows, and their bytes.

Versions are those that Kafka 4.3 writes, so that its own tools and brokers read them: offsets in
version 4, or 1 where the commit says when it expires; classic groups in version 3, consumer groups
in version 0.
"""

from typing import TypeVar

from msgspec import Struct

from penstock.coordinator.group.consumer.records import (
    CONSUMER_KINDS,
    ConsumerGroupRecord,
    ConsumerValue,
)
from penstock.coordinator.group.offsets.reader import OffsetReader
from penstock.core.errors import KafkaError
from penstock.protocol.codec import decode
from penstock.protocol.fields import Message
from penstock.protocol.stored.classic_group import GroupMetadataKey, GroupMetadataValue
from penstock.protocol.stored.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.versioned import encode_record_key, encode_versioned, read_prefix

_V = TypeVar("_V", bound=Message)
_PREFIX = 2
_LEGACY_OFFSET, _OFFSET, _GROUP = 0, 1, 2


class OffsetRecord(Struct, frozen=True, gc=False):
    """A group's offset in one partition; without a value it is deleted."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class ClassicGroupRecord(Struct, frozen=True, gc=False):
    """A generation of a classic group; without a value the group is deleted."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


Record = OffsetRecord | ClassicGroupRecord | ConsumerGroupRecord


class Skipped(Struct, frozen=True):
    """A record that is left out. The note says why, for the broker's log."""

    note: str


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as they are appended; a value of None is a tombstone."""
    return encode_record_key(record.key), _encode_value(record.value)


def _encode_value(
    value: OffsetCommitValue | GroupMetadataValue | ConsumerValue | None,
) -> bytes | None:
    match value:
        case None:
            return None
        case OffsetCommitValue():
            return encode_versioned(value, 1 if value.expire_timestamp >= 0 else 4)
        case GroupMetadataValue():
            return encode_versioned(value, 3)
        case _:
            return encode_versioned(value, 0)


def decode_record(
    key: bytes | None, value: bytes | memoryview | None, reader: OffsetReader | None = None
) -> Record | Skipped:
    """The record in these bytes. What the machine does not know is skipped, never an error.

    With a `reader`, which whoever reads a whole log keeps for that long, offsets take less time.
    """
    if key is None:
        return Skipped("a record without a key, which every record of __consumer_offsets has")
    if reader is not None and value is not None:
        offset_key, offset = reader.key(key), reader.value(value)
        if offset_key is not None and offset is not None:
            return OffsetRecord(offset_key, offset)
    try:
        kind = read_prefix(key)
        if kind == _OFFSET:
            offset_key, _ = decode(OffsetCommitKey, 0, key, _PREFIX)
            return OffsetRecord(offset_key, _decode_value(OffsetCommitValue, value))
        if kind == _GROUP:
            group_key, _ = decode(GroupMetadataKey, 0, key, _PREFIX)
            return ClassicGroupRecord(group_key, _decode_value(GroupMetadataValue, value))
        if kind in CONSUMER_KINDS:
            key_type, value_type = CONSUMER_KINDS[kind]
            consumer_key, _ = decode(key_type, 0, key, _PREFIX)
            return ConsumerGroupRecord(consumer_key, _decode_value(value_type, value))
        if kind == _LEGACY_OFFSET:
            return _modern(key, value)
    except KafkaError as error:
        return Skipped(f"a record of __consumer_offsets cannot be read: {error.message}")
    return Skipped(f"record type {kind} of __consumer_offsets is not known")


def _decode_value(cls: type[_V], value: bytes | memoryview | None) -> _V | None:
    if value is None:
        return None
    message, _ = decode(cls, read_prefix(value), value, _PREFIX)
    return message


def _modern(key: bytes, value: bytes | memoryview | None) -> OffsetRecord:
    """An offset of Kafka before 0.10 as one of today."""
    old_key, _ = decode(LegacyOffsetCommitKey, 0, key, _PREFIX)
    new_key = OffsetCommitKey(old_key.group, old_key.topic, old_key.partition)
    old = _decode_value(LegacyOffsetCommitValue, value)
    if old is None:
        return OffsetRecord(new_key, None)
    return OffsetRecord(
        new_key,
        OffsetCommitValue(
            offset=old.offset, metadata=old.metadata, commit_timestamp=old.commit_timestamp
        ),
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group_id, topic, partition), None)


def group_tombstone(group_id: str) -> ClassicGroupRecord:
    return ClassicGroupRecord(GroupMetadataKey(group_id), None)
