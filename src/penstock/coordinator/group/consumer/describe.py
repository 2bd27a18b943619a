"""ConsumerGroupDescribe: a consumer group as administrators see it."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.coordinator.group.consumer.model import ConsumerGroup, ConsumerGroupMember
from penstock.coordinator.group.group_type import DecisionContext
from penstock.coordinator.group.topics import Topics
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def describe_group(
    context: DecisionContext, group_id: str, version: int
) -> ConsumerGroupDescribeDescribedGroup:
    """Describes a group; one that is no consumer group gets an error."""
    group = context.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if not group_id:
            return ConsumerGroupDescribeDescribedGroup(ErrorCode.INVALID_GROUP_ID, None, group_id)
        reason = "not found" if group is None else "is not a consumer group"
        return ConsumerGroupDescribeDescribedGroup(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.", group_id
        )
    topics, assignors = context.topics, context.config.group_consumer_assignors
    return ConsumerGroupDescribeDescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(assignors) or assignors[0],
        members=[_describe_member(group, member, topics) for member in group.members.values()],
    )


def _describe_member(
    group: ConsumerGroup, member: ConsumerGroupMember, topics: Topics
) -> ConsumerGroupDescribeMember:
    owned: dict[UUID, set[int]] = {}
    for epochs in (member.assigned, member.pending_revocation):
        for topic_id, partitions in epochs.items():
            owned.setdefault(topic_id, set()).update(partitions)
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.target.get(member.member_id, {}), topics),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(
    partitions: Mapping[UUID, Iterable[int]], topics: Topics
) -> ConsumerGroupDescribeAssignment:
    """Topics that no longer exist are omitted."""
    return ConsumerGroupDescribeAssignment(
        [
            ConsumerGroupDescribeTopicPartitions(topic_id, name, sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (name := topics.topic_name(topic_id)) is not None
        ]
    )
