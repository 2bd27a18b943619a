"""The consumer protocol inside JoinGroup and SyncGroup: subscriptions and assignments."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.coordinator.group.topics import Topics
from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequestTopicPartitions as OwnedPartitions,
)
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.protocol.versioned import encode_versioned, read_prefix

_PREFIX = 2
_HIGHEST_VERSION = 3


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return decode(ConsumerProtocolSubscription, _version(data), data, _PREFIX)[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return decode(ConsumerProtocolAssignment, _version(data), data, _PREFIX)[0]


def write_assignment(
    partitions: Mapping[UUID, Iterable[int]], subscription: bytes, topics: Topics
) -> bytes:
    """Encodes an assignment in the version of the member's subscription.

    Topics that no longer exist are omitted.
    """
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(name, sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (name := topics.topic_name(topic_id)) is not None
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned), _version(subscription))


def owned_partitions(
    subscription: ConsumerProtocolSubscription, topics: Topics
) -> list[OwnedPartitions]:
    return [
        OwnedPartitions(topic_id, list(topic.partitions))
        for topic in subscription.owned_partitions
        if (topic_id := topics.topic_id(topic.topic)) is not None
    ]


def _version(data: bytes) -> int:
    """Returns the version to decode with: later versions only add fields at the end."""
    version = read_prefix(data)
    if version < 0:
        raise ProtocolError(f"{version} is not a version of the consumer protocol")
    return min(version, _HIGHEST_VERSION)
