"""The `uniform` assignor: members get equal numbers of partitions and keep what they had.

Balance comes first: no member has two partitions more than another that could take one of them.
Then as few partitions as possible move. This file has the case that all members subscribe to the
same topics; `mixed` has the other one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from uuid import UUID

from penstock.coordinator.group.assignors.mixed import assign_mixed
from penstock.coordinator.group.assignors.spec import (
    Assignment,
    MemberSpec,
    check_topics,
    id_order,
    is_homogeneous,
)


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[UUID, int]
) -> Assignment:
    """An `Assignor`.

    A partition that several members had goes to the first of them by id; one that does not exist is
    ignored.
    """
    if not members:
        return {}
    if not is_homogeneous(members):
        return assign_mixed(members, partition_counts)
    topic_ids = next(iter(members.values())).topic_ids
    check_topics(topic_ids, partition_counts)
    return _assign_homogeneous(
        members, {topic_id: partition_counts[topic_id] for topic_id in topic_ids}
    )


def _assign_homogeneous(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[UUID, int]
) -> Assignment:
    """Assigns each member `quota` partitions, and `extra` members one more."""
    quota, extra = divmod(sum(partition_counts.values()), len(members))
    free = {topic_id: set(range(count)) for topic_id, count in partition_counts.items()}
    revoked: list[tuple[UUID, int]] = []
    assignment: Assignment = {}
    rooms: list[tuple[str, int]] = []
    for members_left, member_id in zip(range(len(members), 0, -1), sorted(members), strict=True):
        share = assignment[member_id] = _claim(members[member_id].assigned, free)
        limit = quota + (extra > 0)
        room = limit - sum(map(len, share.values()))
        if room < 0:
            revoked += _trim(share, limit)
        elif room > 0 and members_left > extra > 0:
            # Enough members follow: leave the extra partition to one that has it already.
            room -= 1
            limit -= 1
        if room > 0:
            rooms.append((member_id, room))
        extra -= limit > quota
    unowned = (
        (topic_id, partition)
        for topic_id in sorted(free, key=id_order)
        for partition in sorted(free[topic_id])
    )
    pending = chain(unowned, revoked)
    for member_id, room in rooms:
        _give(assignment[member_id], islice(pending, room))
    return assignment


def _claim(
    assigned: Mapping[UUID, frozenset[int]], free: Mapping[UUID, set[int]]
) -> dict[UUID, frozenset[int]]:
    """Returns the free part of an assignment, and removes it from `free`."""
    claimed = {}
    for topic_id, partitions in assigned.items():
        spare = free.get(topic_id)
        if spare is not None and (claim := partitions & spare):
            claimed[topic_id] = claim
            spare -= claim
    return claimed


def _trim(share: dict[UUID, frozenset[int]], limit: int) -> list[tuple[UUID, int]]:
    """Removes the partitions beyond a member's limit: the highest topic ids and partitions."""
    owned = [
        (topic_id, partition)
        for topic_id in sorted(share, key=id_order)
        for partition in sorted(share[topic_id])
    ]
    share.clear()
    _give(share, owned[:limit])
    return owned[limit:]


def _give(share: dict[UUID, frozenset[int]], partitions: Iterable[tuple[UUID, int]]) -> None:
    by_topic: dict[UUID, list[int]] = defaultdict(list)
    for topic_id, partition in partitions:
        by_topic[topic_id].append(partition)
    for topic_id, added in by_topic.items():
        share[topic_id] = share.get(topic_id, frozenset()).union(added)
