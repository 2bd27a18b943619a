"""The interface of assignors: their input and output, and functions that they share."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Unpack
from uuid import UUID

from penstock.core.errors import ErrorCode, ErrorDetails, KafkaError


class MemberSpec(NamedTuple):
    """A member of the group, as input of an assignor."""

    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[UUID]
    """The topics it subscribes to, by name or pattern; only topics that exist."""
    assigned: Mapping[UUID, frozenset[int]]
    """Its previous target assignment; empty for a member that has just joined."""


Assignment = dict[str, dict[UUID, frozenset[int]]]
"""Partitions by member id and topic id. It has every member, with `{}` for no partitions, but no
topic without partitions."""

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[UUID, int]], Assignment]
"""Returns the target assignment for the members, by id, and the partition counts of all topics.
Equal arguments lead to equal results, whatever the order of the mappings.
Raises `PartitionAssignorError`."""


class PartitionAssignorError(KafkaError):
    """The arguments allow no assignment (Kafka's PartitionAssignorException)."""

    def __init__(self, cause: str, **details: Unpack[ErrorDetails]) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, cause, **details)


def id_order(topic_id: UUID) -> int:
    """Sorts topic ids as Kafka does: by their two halves, each a signed 64-bit number."""
    return topic_id.int ^ (1 << 127 | 1 << 63)


def check_topics(topic_ids: Iterable[UUID], partition_counts: Mapping[UUID, int]) -> None:
    """Raises `PartitionAssignorError` when one of the topics does not exist."""
    for topic_id in topic_ids:
        if topic_id not in partition_counts:
            raise PartitionAssignorError(
                f"members subscribe to topic id {topic_id}, which does not exist",
                remedy="omit it from their subscriptions",
            )


def is_homogeneous(members: Mapping[str, MemberSpec]) -> bool:
    """Returns whether all members subscribe to the same topics."""
    first, *rest = (member.topic_ids for member in members.values())
    return all(topic_ids is first or topic_ids == first for topic_ids in rest)


def subscribers_by_topic(subscriptions: Sequence[frozenset[UUID]]) -> dict[UUID, list[int]]:
    """Returns the members of each subscribed topic, ascending, as indexes of the argument."""
    # Members mostly share a few subscriptions, and hashing a frozenset once costs less than hashing
    # each of its topic ids: the hash of a UUID is a Python call.
    members_of: dict[frozenset[UUID], list[int]] = defaultdict(list)
    for index, topic_ids in enumerate(subscriptions):
        members_of[topic_ids].append(index)
    by_topic: dict[UUID, list[list[int]]] = defaultdict(list)
    for topic_ids, indexes in members_of.items():
        for topic_id in topic_ids:
            by_topic[topic_id].append(indexes)
    return {
        topic_id: lists[0] if len(lists) == 1 else sorted(index for part in lists for index in part)
        for topic_id, lists in by_topic.items()
    }
