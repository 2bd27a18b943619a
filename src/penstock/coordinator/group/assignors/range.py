"""The `range` assignor: each topic's partitions in runs, one for each subscriber.

The previous assignment is ignored. The result still stays the same while members, subscriptions and
topics do, and across restarts of static members, which come first, by instance id.
"""

from collections.abc import Mapping
from uuid import UUID

from penstock.coordinator.group.assignors.spec import (
    Assignment,
    MemberSpec,
    check_topics,
    subscribers_by_topic,
)


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[UUID, int]
) -> Assignment:
    """An `Assignor`.

    Topics with equal partition counts and the same subscribers are co-partitioned: a member gets
    the same partitions of each.
    """
    member_ids = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    subscribers = subscribers_by_topic([members[member_id].topic_ids for member_id in member_ids])
    check_topics(subscribers, partition_counts)
    assignment: Assignment = {member_id: {} for member_id in member_ids}
    shares = list(assignment.values())
    runs_of: dict[tuple[int, int], list[frozenset[int]]] = {}
    for topic_id, indexes in subscribers.items():
        split = partition_counts[topic_id], len(indexes)
        if (runs := runs_of.get(split)) is None:
            runs = runs_of[split] = _runs(*split)
        # With fewer partitions than subscribers, the last of them get none.
        for index, run in zip(indexes, runs, strict=False):
            shares[index][topic_id] = run
    return assignment


def _rank(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id


def _runs(partitions: int, subscribers: int) -> list[frozenset[int]]:
    """Returns the partitions in at most `subscribers` runs; the first are longer."""
    length, longer = divmod(partitions, subscribers)
    runs: list[frozenset[int]] = []
    start = 0
    while start < partitions:
        end = start + length + (len(runs) < longer)
        runs.append(frozenset(range(start, end)))
        start = end
    return runs
