"""Conversion of group descriptions in responses to `GroupDescription`."""

from typing import TypeVar

from penstock.client.admin.model_groups import (
    GroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
)
from penstock.client.admin.results import operations_of
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.protocol.codec import decode
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
)
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from penstock.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsDescribedGroup,
)
from penstock.protocol.versioned import read_prefix

M = TypeVar("M", bound=Message)
_CONSUMER = "consumer"


def consumer_group(group: ConsumerGroupDescribeDescribedGroup, node: Node) -> GroupDescription:
    """Converts a group with the consumer protocol (KIP-848)."""
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        GroupState.parse(group.group_state),
        _CONSUMER,
        group.assignor_name,
        node,
        tuple(_consumer_member(member) for member in group.members),
        group.group_epoch,
        group.assignment_epoch,
        operations_of(group.authorized_operations),
    )


def classic_group(group: DescribeGroupsDescribedGroup, node: Node) -> GroupDescription:
    is_of_consumers = group.protocol_type in (_CONSUMER, "")
    return GroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        GroupState.parse(group.group_state),
        group.protocol_type,
        group.protocol_data,
        node,
        tuple(_classic_member(member, is_of_consumers) for member in group.members),
        authorized_operations=operations_of(group.authorized_operations),
    )


def _consumer_member(member: ConsumerGroupDescribeMember) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _assigned(member.assignment),
        tuple(sorted(member.subscribed_topic_names)),
        _assigned(member.target_assignment),
        member.member_epoch,
        None if member.member_type < 0 else member.member_type == 0,
        member.rack_id,
        member.subscribed_topic_regex or None,
    )


def _assigned(assignment: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _classic_member(member: DescribedGroupMember, is_consumer: bool) -> MemberDescription:
    subscription = assignment = None
    if is_consumer:
        subscription = _decode(ConsumerProtocolSubscription, member.member_metadata)
        assignment = _decode(ConsumerProtocolAssignment, member.member_assignment)
    assigned = [] if assignment is None else assignment.assigned_partitions
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in assigned
                for index in topic.partitions
            )
        ),
        None if subscription is None else tuple(sorted(subscription.topics)),
        rack_id=None if subscription is None else subscription.rack_id,
    )


def _decode(cls: type[M], data: bytes) -> M | None:
    """Decodes data that members exchange through the broker; returns None for other data.

    Newer versions than those of this client start with the fields of its newest one.
    """
    if not data:
        return None
    try:
        version = min(read_prefix(data), cls.INFO.versions.high)
        return decode(cls, version, data, 2)[0]
    except KafkaError:
        return None
