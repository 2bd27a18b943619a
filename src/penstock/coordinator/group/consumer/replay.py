"""Applies records to consumer groups.

Compaction may leave any order of records, and tombstones of things that no longer exist. So every
record is applied independently of others, and a tombstone of something unknown is ignored.
"""

from msgspec.structs import replace

from penstock.coordinator.group.consumer.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    EpochsByPartition,
    MemberState,
    ResolvedRegex,
)
from penstock.coordinator.group.consumer.records import ConsumerGroupRecord
from penstock.protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


def replay(group: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    """Applies a record to its group; the caller handles the tombstone that deletes the group."""
    match record.value:
        case None:
            _replay_tombstone(group, record)
        case ConsumerGroupCurrentMemberAssignmentValue() as value:
            assert isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey)
            member = _member(group, record.key.member_id)
            group.put(_with_assignment(member, value))
        case ConsumerGroupTargetAssignmentMemberValue() as value:
            assert isinstance(record.key, ConsumerGroupTargetAssignmentMemberKey)
            group.target[record.key.member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
            }
        case ConsumerGroupMemberMetadataValue() as value:
            assert isinstance(record.key, ConsumerGroupMemberMetadataKey)
            member = _member(group, record.key.member_id)
            group.put(_with_metadata(member, value))
        case ConsumerGroupMetadataValue() as value:
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        case ConsumerGroupTargetAssignmentMetadataValue() as value:
            group.assignment_epoch = value.assignment_epoch
            group.assignment_timestamp_ms = value.assignment_timestamp
        case ConsumerGroupRegularExpressionValue() as value:
            assert isinstance(record.key, ConsumerGroupRegularExpressionKey)
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            group.resolve(record.key.regular_expression, resolved)
        case ConsumerGroupPartitionMetadataValue():
            group.has_partition_metadata = True


def _replay_tombstone(group: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    match record.key:
        case ConsumerGroupCurrentMemberAssignmentKey() as key:
            member = group.members.get(key.member_id)
            if member is not None:
                group.put(
                    replace(
                        member,
                        member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                        previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                        assigned={},
                        pending_revocation={},
                    )
                )
        case ConsumerGroupTargetAssignmentMemberKey() as key:
            group.target.pop(key.member_id, None)
        case ConsumerGroupMemberMetadataKey() as key:
            group.drop(key.member_id)
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.assignment_epoch = -1
            group.assignment_timestamp_ms = 0
        case ConsumerGroupRegularExpressionKey() as key:
            group.resolve(key.regular_expression, None)
        case ConsumerGroupPartitionMetadataKey():
            group.has_partition_metadata = False


def _member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    return group.members.get(member_id) or ConsumerGroupMember(member_id)


def _with_metadata(
    member: ConsumerGroupMember, value: ConsumerGroupMemberMetadataValue
) -> ConsumerGroupMember:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def _with_assignment(
    member: ConsumerGroupMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerGroupMember:
    # Records of Kafka before 4.3 have no epochs of partitions.
    default = max(value.member_epoch, 0)
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_epochs(value.assigned_partitions, default),
        pending_revocation=_epochs(value.partitions_pending_revocation, default),
    )


def _epochs(
    topics: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions], default: int
) -> EpochsByPartition:
    by_topic = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [default] * len(topic.partitions)
        by_topic[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return by_topic
