"""The encoding of subscriptions and assignments in JoinGroup and SyncGroup."""

from itertools import groupby

from penstock.client.consumer.assignors.java_order import string_order
from penstock.client.consumer.assignors.model import Assignment, Subscription
from penstock.core.ids import TopicPartition
from penstock.protocol.codec import decode
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from penstock.protocol.versioned import encode_versioned, read_prefix

VERSION = 3
_PREFIX = 2


def encode_subscription(subscription: Subscription) -> bytes:
    owned = sorted(
        subscription.owned_partitions, key=lambda p: (string_order(p.topic), p.partition)
    )
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics, key=string_order),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic, [p.partition for p in partitions])
            for topic, partitions in groupby(owned, key=lambda p: p.topic)
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return encode_versioned(message, VERSION)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Decodes a subscription; of newer versions, the fields of the newest supported one."""
    version = min(read_prefix(data), VERSION)
    message, _ = decode(ConsumerProtocolSubscription, version, data, _PREFIX)
    return Subscription(
        tuple(message.topics),
        message.user_data,
        tuple(
            TopicPartition(owned.topic, partition)
            for owned in message.owned_partitions
            for partition in owned.partitions
        ),
        max(message.generation_id, -1),
        message.rack_id or None,
        group_instance_id,
    )


def encode_assignment(assignment: Assignment) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in assignment.partitions:
        by_topic.setdefault(topic, []).append(partition)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic, partitions)
            for topic, partitions in by_topic.items()
        ],
        user_data=assignment.user_data,
    )
    return encode_versioned(message, VERSION)


def decode_assignment(data: bytes) -> Assignment:
    version = min(read_prefix(data), VERSION)
    message, _ = decode(ConsumerProtocolAssignment, version, data, _PREFIX)
    return Assignment(
        tuple(
            TopicPartition(assigned.topic, partition)
            for assigned in message.assigned_partitions
            for partition in assigned.partitions
        ),
        message.user_data,
    )
