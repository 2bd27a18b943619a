"""The record of a classic group in `__consumer_offsets`: type 2."""

from collections.abc import Mapping

from penstock.coordinator.group.classic.model import ClassicGroup, group_value
from penstock.coordinator.group.record import Record, RecordType
from penstock.protocol.stored.classic_group import GroupMetadataKey, GroupMetadataValue


class ClassicGroupRecord(Record, frozen=True, gc=False):
    """A generation of a classic group; without a value the group is deleted."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


CLASSIC_RECORD_TYPES: Mapping[int, RecordType] = {
    2: RecordType(ClassicGroupRecord, GroupMetadataKey, GroupMetadataValue, 3)
}


def group_record(group: ClassicGroup) -> ClassicGroupRecord:
    """Returns the group as it is stored. All members must have the chosen protocol."""
    return ClassicGroupRecord(GroupMetadataKey(group.group_id), group_value(group))


def group_tombstone(group_id: str) -> ClassicGroupRecord:
    return ClassicGroupRecord(GroupMetadataKey(group_id), None)
