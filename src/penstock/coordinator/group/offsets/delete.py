"""The end of committed offsets: OffsetDelete, and offsets that expire."""

from penstock.coordinator.group.group import Group
from penstock.coordinator.group.group_types import type_of
from penstock.coordinator.group.offsets.records import OffsetRecord, offset_tombstone
from penstock.coordinator.group.offsets.store import Offsets
from penstock.coordinator.group.topics import Topics
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete_offsets(
    offsets: Offsets, group: Group, request: OffsetDeleteRequest, topics: Topics
) -> tuple[list[OffsetRecord], list[OffsetDeleteResponseTopic]]:
    """Returns the records and the topics of the response; topics that members read are refused."""
    records: list[OffsetRecord] = []
    response_topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        response_topic = OffsetDeleteResponseTopic(topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            error = ErrorCode.NONE
            if not topics.has_partition(topic.name, index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.is_subscribed_to(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif offsets.has(group.group_id, topic.name, index):
                records.append(offset_tombstone(group.group_id, topic.name, index))
            response_topic.partitions.append(OffsetDeleteResponsePartition(index, error))
        response_topics.append(response_topic)
    return records, response_topics


def expire_offsets(
    offsets: Offsets, group: Group, now: int, retention_ms: int
) -> tuple[list[OffsetRecord], bool]:
    """Returns tombstones of the expired offsets, and whether no offset of the group remains."""
    committed = offsets.of(group.group_id)
    pending = offsets.pending
    nothing_open = not pending.has_open(group.group_id)
    if not committed:
        return [], nothing_open
    retention_start = type_of(group).retention_start(group)
    if retention_start is None:
        return [], False
    records: list[OffsetRecord] = []
    none_remain = nothing_open
    for topic, partitions in committed.items():
        if group.is_subscribed_to(topic):
            none_remain = False
            continue
        for partition, value in partitions.items():
            if value.expire_timestamp >= 0:
                is_expired = now >= value.expire_timestamp
            else:
                is_expired = now - retention_start(value) >= retention_ms
            if is_expired and not pending.is_open(group.group_id, topic, partition):
                records.append(offset_tombstone(group.group_id, topic, partition))
            else:
                none_remain = False
    return records, none_remain
