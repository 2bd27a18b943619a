"""OffsetFetch: the committed offsets of a group."""

from penstock.coordinator.group.group import Group
from penstock.coordinator.group.group_types import type_of
from penstock.coordinator.group.offsets.pending import PendingOffsets
from penstock.coordinator.group.offsets.store import Offsets, Partitions
from penstock.coordinator.group.topics import Topics
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.protocol.stored.offsets import OffsetCommitValue

_TOPIC_ID_VERSION = 10


def fetch(
    offsets: Offsets,
    group: Group | None,
    request: OffsetFetchRequestGroup,
    version: int,
    topics: Topics,
    *,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    """Returns the committed offsets of a group, of all partitions if the request names none.

    With `require_stable` an offset that an open transaction may change is an error.
    """
    if group is not None:
        error = type_of(group).check_fetch(group, request.member_id, request.member_epoch)
        if error:
            return OffsetFetchResponseGroup(request.group_id, [], error)
    committed = {} if group is None else offsets.of(request.group_id)
    response = OffsetFetchResponseGroup(request.group_id)
    by_id = version >= _TOPIC_ID_VERSION
    if request.topics is None:
        for name, partitions in committed.items():
            topic_id = topics.topic_id(name) if by_id else ZERO_UUID
            if topic_id is None:
                continue
            fetched = OffsetFetchResponseTopics(name, topic_id)
            fetched.partitions.extend(_partition(p, value) for p, value in partitions.items())
            response.topics.append(fetched)
    else:
        for topic in request.topics:
            response.topics.append(_fetch_topic(committed, topic, topics, by_id=by_id))
    if require_stable and offsets.pending.has_open(request.group_id):
        _hide_unstable(offsets.pending, response, topics, by_id=by_id)
    return response


def _hide_unstable(
    pending: PendingOffsets, response: OffsetFetchResponseGroup, topics: Topics, *, by_id: bool
) -> None:
    for topic in response.topics:
        name = topics.topic_name(topic.topic_id) if by_id else topic.name
        topic.partitions = [
            OffsetFetchResponsePartitions(
                p.partition_index, -1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
            )
            if name is not None and pending.is_open(response.group_id, name, p.partition_index)
            else p
            for p in topic.partitions
        ]


def _fetch_topic(
    committed: dict[str, Partitions],
    topic: OffsetFetchRequestTopics,
    topics: Topics,
    *,
    by_id: bool,
) -> OffsetFetchResponseTopics:
    name = topics.topic_name(topic.topic_id) if by_id else topic.name
    response = OffsetFetchResponseTopics(topic.name, topic.topic_id)
    if name is None:
        response.partitions.extend(
            OffsetFetchResponsePartitions(p, -1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for p in topic.partition_indexes
        )
        return response
    partitions = committed.get(name, {})
    for partition in topic.partition_indexes:
        value = partitions.get(partition)
        if value is not None and by_id and value.topic_id not in (ZERO_UUID, topic.topic_id):
            # It was committed for a deleted topic of the same name.
            value = None
        response.partitions.append(_partition(partition, value))
    return response


def _partition(partition: int, value: OffsetCommitValue | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(partition, -1)
    return OffsetFetchResponsePartitions(
        partition, value.offset, value.leader_epoch, value.metadata
    )
