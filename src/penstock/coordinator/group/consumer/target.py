"""The target assignment of a consumer group, as an assignor computes it."""

from collections.abc import Mapping
from uuid import UUID

from penstock.coordinator.group.assignors import Assignment, Assignor, MemberSpec
from penstock.coordinator.group.consumer.model import (
    ConsumerGroup,
    ConsumerGroupMember,
    Partitions,
)
from penstock.coordinator.group.topics import Topics


def compute_target(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerGroupMember],
    previous: Mapping[str, Partitions],
    assignor: Assignor,
    topics: Topics,
) -> Assignment:
    """Returns the new target of `members`, whose last target is `previous`.

    Patterns are those of `group`.
    """
    ids: dict[str, UUID | None] = {}
    counts: dict[UUID, int] = {}
    # Most members have the same subscription: it is looked up once.
    ids_by_subscription: dict[frozenset[str], frozenset[UUID]] = {}

    def topic_ids(names: frozenset[str]) -> frozenset[UUID]:
        subscribed = ids_by_subscription.get(names)
        if subscribed is None:
            for name in names - ids.keys():
                ids[name] = topic_id = topics.topic_id(name)
                if topic_id is not None:
                    counts[topic_id] = topics.partition_count(name)
            subscribed = frozenset(
                topic_id for name in names if (topic_id := ids[name]) is not None
            )
            ids_by_subscription[names] = subscribed
        return subscribed

    specs = {
        member_id: MemberSpec(
            member.instance_id,
            member.rack_id,
            topic_ids(group.topics_of(member)),
            previous.get(member_id, {}),
        )
        for member_id, member in members.items()
    }
    return assignor(specs, counts)
