"""The target assignment of a group: who is to own what, as an assignor decides."""

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
    """A new target for `members`, who were to own `previous`. Patterns are those of `group`."""
    ids: dict[str, UUID | None] = {}
    counts: dict[UUID, int] = {}
    # Members mostly have the same subscription: it is looked up once.
    resolved: dict[frozenset[str], frozenset[UUID]] = {}

    def topic_ids(names: frozenset[str]) -> frozenset[UUID]:
        found = resolved.get(names)
        if found is None:
            for name in names - ids.keys():
                ids[name] = topic_id = topics.topic_id(name)
                if topic_id is not None:
                    counts[topic_id] = topics.partition_count(name)
            known = (ids[name] for name in names)
            found = frozenset(topic_id for topic_id in known if topic_id is not None)
            resolved[names] = found
        return found

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
