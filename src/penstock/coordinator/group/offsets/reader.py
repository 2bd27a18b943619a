"""Offsets of a whole log, read fast: a million of them while a coordinator's clients wait.

The codecs take 2.5 µs for the key and value of an offset, this takes 1.1. It knows the one form
that nearly all of them have, version 4 without metadata, and remembers what repeats: the names of
groups and topics, and the ids of topics.
"""

from struct import Struct
from uuid import UUID

from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

_OFFSET_KIND = b"\0\1"
_SHORT = Struct(">h")
_PARTITION_SIZE = 4
_VALUE = Struct(">hqiBqBBB16s")
"""Version, offset, leader epoch, metadata, commit timestamp; a tagged field: the topic's id."""
_VERSION, _EMPTY, _ONE_FIELD, _TOPIC_ID_TAG, _ID_SIZE = 4, 1, 1, 0, 16


class OffsetReader:
    """For the records of one log. Drop it when the log is read."""

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}
        """Group and topic, by the bytes of a key up to its partition."""
        self._topic_ids: dict[bytes, UUID] = {}

    def key(self, key: bytes) -> OffsetCommitKey | None:
        """What the key says; None where it is another kind of key, or spoilt."""
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
        """What the value says; None where it has another form than most."""
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
        known = self._topic_ids.get(topic_id)
        if known is None:
            known = self._topic_ids[topic_id] = UUID(bytes=topic_id)
        return OffsetCommitValue(offset, leader_epoch, "", timestamp, -1, known)


def _names(start: bytes) -> tuple[str, str] | None:
    """Group and topic of a key without its partition; None where that is not what it is."""
    if start[:2] != _OFFSET_KIND or len(start) < 6:
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
