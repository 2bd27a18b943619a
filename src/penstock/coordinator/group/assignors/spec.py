"""What an assignor is given and what it returns, and what every assignor needs to know first."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.core.errors import ErrorCode, KafkaError


class MemberSpec(NamedTuple):
    """A member of the group, as an assignor sees it."""

    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[UUID]
    """What it subscribes to, patterns included: only topics that exist."""
    assigned: Mapping[UUID, frozenset[int]]
    """Its target assignment before this one; empty for a member that has just joined."""


Assignment = dict[str, dict[UUID, frozenset[int]]]
"""Partitions by member id and topic id. Every member is there, without partitions as `{}`; a
topic of which a member has no partition is not."""

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[UUID, int]], Assignment]
"""From the members by id, and the number of partitions of each topic that exists, to the new
target assignment. Equal arguments give equal results, in whatever order the mappings are.
Raises `PartitionAssignorError`."""


class PartitionAssignorError(KafkaError):
    """No assignment can be made of these arguments (Kafka's PartitionAssignorException)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


def id_order(topic_id: UUID) -> int:
    """Sorts topic ids as Kafka does: by their two halves, each a signed 64-bit number."""
    return topic_id.int ^ (1 << 127 | 1 << 63)


def check_topics(topic_ids: Iterable[UUID], partition_counts: Mapping[UUID, int]) -> None:
    """Raises `PartitionAssignorError` when one of the topics does not exist."""
    for topic_id in topic_ids:
        if topic_id not in partition_counts:
            raise PartitionAssignorError(
                f"members subscribe to topic id {topic_id}, which does not exist: leave it out of "
                "their subscriptions"
            )


def is_homogeneous(members: Mapping[str, MemberSpec]) -> bool:
    """Whether all members subscribe to the same topics."""
    first, *others = (member.topic_ids for member in members.values())
    return all(other is first or other == first for other in others)


def subscribers_by_topic(subscriptions: Sequence[frozenset[UUID]]) -> dict[UUID, list[int]]:
    """The members of each subscribed topic, ascending; a member is its index in the argument."""
    # Members mostly share a few subscriptions: hashing a frozenset once is cheaper than hashing
    # each of its topic ids, as a UUID's hash is a Python call.
    alike: dict[frozenset[UUID], list[int]] = defaultdict(list)
    for index, topic_ids in enumerate(subscriptions):
        alike[topic_ids].append(index)
    by_topic: dict[UUID, list[list[int]]] = defaultdict(list)
    for topic_ids, indexes in alike.items():
        for topic_id in topic_ids:
            by_topic[topic_id].append(indexes)
    return {
        topic_id: lists[0] if len(lists) == 1 else sorted(index for part in lists for index in part)
        for topic_id, lists in by_topic.items()
    }
