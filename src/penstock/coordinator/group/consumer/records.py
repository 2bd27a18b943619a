"""The records of consumer groups in `__consumer_offsets`: types 3 to 8, and 16.

Lists are sorted, so that equal states have equal bytes.
"""

from collections.abc import Iterator, Mapping
from uuid import UUID

from penstock.coordinator.group.consumer.model import (
    ConsumerGroup,
    ConsumerGroupMember,
    EpochsByPartition,
    Partitions,
    ResolvedRegex,
)
from penstock.coordinator.group.record import Record, RecordType
from penstock.protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberTopicPartition,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

ConsumerKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
ConsumerValue = (
    ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)


class ConsumerGroupRecord(Record, frozen=True, gc=False):
    """A part of a consumer group; without a value it is deleted. Key and value are of one type."""

    key: ConsumerKey
    value: ConsumerValue | None


_KEYS_AND_VALUES: Mapping[int, tuple[type[ConsumerKey], type[ConsumerValue]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
CONSUMER_RECORD_TYPES: Mapping[int, RecordType] = {
    number: RecordType(ConsumerGroupRecord, key, value, 0)
    for number, (key, value) in _KEYS_AND_VALUES.items()
}


# --- groups


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash)
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id),
        ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupRegularExpressionKey(group_id, regex),
        ConsumerGroupRegularExpressionValue(
            sorted(resolved.topics), resolved.version, resolved.timestamp_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupRegularExpressionKey(group_id, regex), None)


def partition_metadata_tombstone(group_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupPartitionMetadataKey(group_id), None)


# --- members


def member_record(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMemberMetadataKey(group_id, member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        ),
    )


def target_record(group_id: str, member_id: str, partitions: Partitions) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            [
                ConsumerGroupTargetAssignmentMemberTopicPartition(t, sorted(partitions[t]))
                for t in _sorted(partitions)
            ]
        ),
    )


def current_record(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_with_epochs(member.assigned),
            partitions_pending_revocation=_with_epochs(member.pending_revocation),
        ),
    )


def _with_epochs(
    epochs: EpochsByPartition,
) -> list[ConsumerGroupCurrentMemberAssignmentTopicPartitions]:
    topics = []
    for topic_id in _sorted(epochs):
        partitions = sorted(epochs[topic_id])
        topics.append(
            ConsumerGroupCurrentMemberAssignmentTopicPartitions(
                topic_id, partitions, [epochs[topic_id][p] for p in partitions]
            )
        )
    return topics


def _sorted(by_topic: Mapping[UUID, object]) -> list[UUID]:
    return list(by_topic) if len(by_topic) == 1 else sorted(by_topic, key=lambda topic: topic.int)


# --- tombstones, in the order that Kafka's replay needs


def member_tombstones(group_id: str, member_id: str) -> Iterator[ConsumerGroupRecord]:
    yield ConsumerGroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
    yield ConsumerGroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
    yield ConsumerGroupRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None)


def group_tombstones(
    group: ConsumerGroup, renamed: Mapping[str, str] | None = None
) -> Iterator[ConsumerGroupRecord]:
    """Yields the records that delete a group; `renamed` maps old ids of members to new ones."""
    group_id = group.group_id
    new_ids = renamed or {}
    members = [new_ids.get(member_id, member_id) for member_id in group.members]
    for member in members:
        yield ConsumerGroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member), None)
    for member in members:
        yield ConsumerGroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member), None)
    yield ConsumerGroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), None)
    for member in members:
        yield ConsumerGroupRecord(ConsumerGroupMemberMetadataKey(group_id, member), None)
    for regex in group.resolved:
        yield regex_tombstone(group_id, regex)
    yield partition_metadata_tombstone(group_id)
    yield ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id), None)
