"""The `range` assignor: every member gets consecutive partitions of each topic.

Topics with the same members and number of partitions are assigned alike: partition 3 of all of them
goes to the same member. If racks matter, partitions with a replica in the rack of a member are
assigned to it first.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from penstock.client.consumer.assignors.java_order import in_hash_order, string_order
from penstock.client.consumer.assignors.model import (
    PartitionAssignor,
    Subscription,
    TopicRacks,
    racks_matter,
)
from penstock.client.consumer.assignors.roundrobin import in_member_order
from penstock.core.ids import TopicPartition


class RangeAssignor(PartitionAssignor):
    name = "range"

    def assign_partitions(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        members = in_member_order(subscriptions)
        consumers: dict[str, list[str]] = {topic: [] for topic in topics}
        for member in members:
            for topic in dict.fromkeys(subscriptions[member].topics):
                if topic in consumers:
                    consumers[topic].append(member)
        racks = {member: subscriptions[member].rack_id for member in members}
        states = [
            _Topic(topic, topics[topic], consumers[topic], racks) for topic in in_hash_order(topics)
        ]

        assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        by_rack = any(state.by_rack for state in states)
        if by_rack:
            _match_racks(states, assignment)
        for state in states:
            _assign_ranges(state, lambda member, partition: True, assignment)
        if by_rack:
            for partitions in assignment.values():
                partitions.sort(key=lambda p: (string_order(p.topic), p.partition))
        return assignment


class _Topic:
    """A topic with partitions that are not assigned yet."""

    def __init__(
        self,
        topic: str,
        racks: Sequence[frozenset[str]],
        members: list[str],
        member_racks: Mapping[str, str | None],
    ) -> None:
        self.topic = topic
        self.count = len(racks)
        self.members = members
        self.racks = racks
        self.member_racks = {member: member_racks[member] or None for member in members}
        self.unassigned = dict.fromkeys(range(len(racks)))
        self._assigned = dict.fromkeys(members, 0)
        self._share, self._extra = divmod(len(racks), len(members)) if members else (0, 0)
        all_member_racks = {rack for rack in self.member_racks.values() if rack}
        self.has_racks = bool(all_member_racks)
        self.by_rack = racks_matter(
            all_member_racks, {rack for replica_racks in racks for rack in replica_racks}, racks
        )

    def matches(self, member: str, partition: int) -> bool:
        rack = self.member_racks[member]
        return rack is None or (self.has_racks and rack in self.racks[partition])

    def capacity(self, member: str) -> int:
        """Returns the number of partitions that the member may still get."""
        return max(0, self._share + (1 if self._extra > 0 else 0) - self._assigned[member])

    def assign(
        self, member: str, partitions: list[int], assignment: dict[str, list[TopicPartition]]
    ) -> None:
        assignment[member].extend(TopicPartition(self.topic, p) for p in partitions)
        self._assigned[member] += len(partitions)
        if self._assigned[member] > self._share:
            self._extra -= 1
        for partition in partitions:
            self.unassigned.pop(partition, None)


def _assign_ranges(
    state: _Topic,
    may_assign: Callable[[str, int], bool],
    assignment: dict[str, list[TopicPartition]],
) -> None:
    for member in state.members:
        if not state.unassigned:
            break
        allowed = (p for p in state.unassigned if may_assign(member, p))
        partitions = list(islice(allowed, state.capacity(member)))
        if partitions:
            state.assign(member, partitions, assignment)


def _match_racks(states: list[_Topic], assignment: dict[str, list[TopicPartition]]) -> None:
    groups: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_Topic]] = {}
    for state in states:
        # Without racks of members there is nothing to match: such topics form one group.
        count = state.count if state.has_racks else 0
        # Sorted: Kafka compares maps, for which the order of the members is the same anyway.
        key = (tuple(sorted(state.member_racks.items(), key=lambda item: item[0])), count)
        groups.setdefault(key, []).append(state)
    for (_, count), group in groups.items():
        if len(group) > 1:
            _match_co_partitioned(group, count, assignment)
        elif group[0].by_rack:
            _assign_ranges(group[0], group[0].matches, assignment)


def _match_co_partitioned(
    states: list[_Topic], count: int, assignment: dict[str, list[TopicPartition]]
) -> None:
    candidates = list(states[0].members)
    for partition in range(count):
        match = next(
            (
                member
                for member in candidates
                if all(s.matches(member, partition) and s.capacity(member) > 0 for s in states)
            ),
            None,
        )
        if match is None:
            continue
        for state in states:
            state.assign(match, [partition], assignment)
        if all(state.capacity(match) == 0 for state in states):
            candidates.remove(match)
            if not candidates:
                break
