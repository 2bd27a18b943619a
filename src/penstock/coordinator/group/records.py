"""The bytes of the records of `__consumer_offsets`.

The types of records are those of offsets and those of every group type in `group_types`.
"""

from penstock.coordinator.group.group_types import GROUP_RECORD_TYPES
from penstock.coordinator.group.offsets.reader import OffsetReader
from penstock.coordinator.group.offsets.records import (
    LEGACY_OFFSET_TYPE,
    OFFSET_RECORD_TYPES,
    OffsetRecord,
    decode_legacy_offset,
    offset_value_version,
)
from penstock.coordinator.group.record import Record, RecordType
from penstock.coordinator.machine import Skipped
from penstock.core.errors import KafkaError
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.codec import decode
from penstock.protocol.stored.offsets import OffsetCommitValue
from penstock.protocol.versioned import (
    decode_versioned,
    encode_record_key,
    encode_versioned,
    read_prefix,
)

_PREFIX_SIZE = 2
_RECORD_TYPES: dict[int, RecordType] = {**OFFSET_RECORD_TYPES, **GROUP_RECORD_TYPES}
_VALUE_VERSIONS = {kind.value: kind.value_version for kind in _RECORD_TYPES.values()}


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Returns key and value as they are appended; a value of None is a tombstone."""
    key, value = encode_record_key(record.key), record.value
    if value is None:
        return key, None
    if isinstance(value, OffsetCommitValue):
        return key, encode_versioned(value, offset_value_version(value))
    return key, encode_versioned(value, _VALUE_VERSIONS[type(value)])


def decode_record(
    key: bytes | None, value: bytes | memoryview | None, reader: OffsetReader | None = None
) -> Record | Skipped:
    """Returns the record in these bytes; one that cannot be read is skipped, never an error.

    A caller that reads a whole log passes the same `reader` each time: offsets take less time then.
    """
    if key is None:
        return Skipped(f"a record of {GROUP_METADATA_TOPIC} has no key")
    if reader is not None and value is not None:
        offset_key, offset = reader.key(key), reader.value(value)
        if offset_key is not None and offset is not None:
            return OffsetRecord(offset_key, offset)
    try:
        number = read_prefix(key)
        if number == LEGACY_OFFSET_TYPE:
            return decode_legacy_offset(key, value)
        kind = _RECORD_TYPES.get(number)
        if kind is None:
            return Skipped(f"record type {number} of {GROUP_METADATA_TOPIC} is unknown")
        return kind.record(
            decode(kind.key, 0, key, _PREFIX_SIZE)[0],
            None if value is None else decode_versioned(kind.value, value)[0],
        )
    except KafkaError as error:
        return Skipped(f"a record of {GROUP_METADATA_TOPIC} cannot be read: {error.message}")
