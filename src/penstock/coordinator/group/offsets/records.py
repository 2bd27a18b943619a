"""The records of committed offsets in `__consumer_offsets`: types 0 and 1."""

from collections.abc import Mapping

from penstock.coordinator.group.record import Record, RecordType
from penstock.protocol.codec import decode
from penstock.protocol.stored.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.versioned import decode_versioned

_PREFIX_SIZE = 2
LEGACY_OFFSET_TYPE = 0
"""Written by Kafka before 0.10."""


class OffsetRecord(Record, frozen=True, gc=False):
    """A group's offset in one partition; without a value it is deleted."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


OFFSET_RECORD_TYPES: Mapping[int, RecordType] = {
    1: RecordType(OffsetRecord, OffsetCommitKey, OffsetCommitValue, 4)
}


def offset_value_version(value: OffsetCommitValue) -> int:
    """Returns the version to write: 4, or 1 for a commit that names the time of its expiry."""
    return 1 if value.expire_timestamp >= 0 else 4


def decode_legacy_offset(key: bytes, value: bytes | memoryview | None) -> OffsetRecord:
    """Returns an offset that was written by Kafka before 0.10 as one of today."""
    legacy, _ = decode(LegacyOffsetCommitKey, 0, key, _PREFIX_SIZE)
    offset_key = OffsetCommitKey(legacy.group, legacy.topic, legacy.partition)
    if value is None:
        return OffsetRecord(offset_key, None)
    committed, _ = decode_versioned(LegacyOffsetCommitValue, value)
    return OffsetRecord(
        offset_key,
        OffsetCommitValue(
            offset=committed.offset,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_timestamp,
        ),
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group_id, topic, partition), None)
