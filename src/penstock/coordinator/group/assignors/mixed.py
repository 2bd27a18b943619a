"""The `uniform` assignor for members that subscribe to different topics.

Members keep partitions that they still subscribe to. Unowned partitions go to the subscribers with
the fewest. Then, topic by topic and in rounds, partitions move from the subscribers with the most
to those with the fewest, until the two differ by at most one.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from operator import itemgetter
from uuid import UUID

from penstock.coordinator.group.assignors.spec import (
    Assignment,
    MemberSpec,
    check_topics,
    id_order,
    subscribers_by_topic,
)

MAX_ROUNDS = 16
"""The limit of rounds, as in Kafka: subscriptions that overlap like a chain would take many."""

NO_OWNER = -1


class _Topic:
    """A topic, the indexes of its subscribers, and which of them owns each partition."""

    def __init__(self, topic_id: UUID, partitions: int, subscribers: Sequence[int]) -> None:
        self.topic_id = topic_id
        self.subscribers = subscribers
        self.owners = [NO_OWNER] * partitions

    def held(self) -> dict[int, list[int]]:
        """The partitions of each owner, ascending."""
        held: dict[int, list[int]] = defaultdict(list)
        for partition, owner in enumerate(self.owners):
            held[owner].append(partition)
        return held


def assign_mixed(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[UUID, int]
) -> Assignment:
    """An `Assignor`, for members with any subscriptions."""
    member_ids = sorted(members)
    specs = [members[member_id] for member_id in member_ids]
    subscribers = subscribers_by_topic([spec.topic_ids for spec in specs])
    check_topics(subscribers, partition_counts)
    topics = {
        topic_id: _Topic(topic_id, partition_counts[topic_id], indexes)
        for topic_id, indexes in subscribers.items()
    }
    loads = _keep(specs, topics)
    # Topics with many partitions per subscriber leave no choice: they come first.
    ordered = sorted(topics.values(), key=_urgency)
    for topic in ordered:
        _fill(topic, loads)
    _balance([topic for topic in ordered if len(topic.subscribers) > 1], loads)

    assignment: Assignment = {member_id: {} for member_id in member_ids}
    for topic in ordered:
        for owner, partitions in topic.held().items():
            assignment[member_ids[owner]][topic.topic_id] = frozenset(partitions)
    return assignment


def _urgency(topic: _Topic) -> tuple[float, int, int]:
    count = len(topic.subscribers)
    return -len(topic.owners) / count, count, id_order(topic.topic_id)


def _keep(specs: Sequence[MemberSpec], topics: Mapping[UUID, _Topic]) -> list[int]:
    """Keeps owners that still subscribe; returns the number of partitions of each member."""
    loads = [0] * len(specs)
    for index, spec in enumerate(specs):
        for topic_id, partitions in spec.assigned.items():
            if topic_id not in spec.topic_ids:
                continue
            owners = topics[topic_id].owners
            for partition in partitions:
                if partition < len(owners) and owners[partition] == NO_OWNER:
                    owners[partition] = index
                    loads[index] += 1
    return loads


def _fill(topic: _Topic, loads: list[int]) -> None:
    unowned = [partition for partition, owner in enumerate(topic.owners) if owner == NO_OWNER]
    if not unowned:
        return
    receivers = _Receivers(sorted(topic.subscribers, key=loads.__getitem__), loads)
    for partition in unowned:
        member = receivers.next()
        topic.owners[partition] = member
        loads[member] += 1


def _balance(topics: Sequence[_Topic], loads: list[int]) -> None:
    """Moves partitions until no topic has one to move, or for `MAX_ROUNDS`."""
    balanced = 0
    for topic in islice(cycle(topics), MAX_ROUNDS * len(topics)):
        balanced = 1 if _balance_topic(topic, loads) else balanced + 1
        if balanced == len(topics):
            return


def _balance_topic(topic: _Topic, loads: list[int]) -> bool:
    """Moves partitions of one topic between its subscribers; returns whether any moved."""
    current_loads = itemgetter(*topic.subscribers)(loads)
    if max(current_loads) - min(current_loads) <= 1:
        return False
    by_load = sorted(topic.subscribers, key=loads.__getitem__)
    held = topic.held()
    givers = _Givers(by_load, loads, held)
    receivers = _Receivers(by_load, loads)
    moved = False
    while (giver := givers.next()) is not None:
        receiver = receivers.next()
        if givers.level - receivers.level <= 1:
            break
        topic.owners[held[giver].pop()] = receiver
        loads[giver] -= 1
        loads[receiver] += 1
        moved = True
    return moved


class _Receivers:
    """The members that get the next partition: always one of those that have the fewest.

    `by_load` is sorted by load. Its first `_end` members had `level` partitions each when this
    round began, and those before `_position` have got one since.
    """

    def __init__(self, by_load: Sequence[int], loads: Sequence[int]) -> None:
        self._by_load = by_load
        self._loads = loads
        self._end = 0
        self._position = 0
        self.level = loads[by_load[0]] - 1

    def next(self) -> int:
        """Returns a member; the caller assigns it a partition before the next call."""
        if self._position == self._end:
            self.level += 1
            self._position = 0
            while (
                self._end < len(self._by_load)
                and self._loads[self._by_load[self._end]] == self.level
            ):
                self._end += 1
        member = self._by_load[self._position]
        self._position += 1
        return member


class _Givers:
    """The members that give the next partition: of those with one to give, one with the most.

    The mirror image of `_Receivers`: the members from `_start` to `_end` had `level` partitions
    when this round began, and those after `_position` have given one since. Members that hold no
    partition of the topic any more are from `_end` on, and are skipped.
    """

    def __init__(
        self, by_load: list[int], loads: Sequence[int], held: Mapping[int, Sequence[int]]
    ) -> None:
        self._by_load = by_load
        self._loads = loads
        self._held = held
        self._start = self._end = len(by_load)
        self._position = self._end - 1
        self.level = loads[by_load[-1]] + 1

    def next(self) -> int | None:
        """Returns a member that the caller takes a partition from before the next call, or None."""
        while True:
            if self._position < self._start:
                self._next_round()
            if self._position < 0:
                return None
            member = self._by_load[self._position]
            if self._held.get(member):
                self._position -= 1
                return member
            self._skip()

    def _next_round(self) -> None:
        if self._start == self._end and self._start > 0:
            # No member of a higher load had one to give: the next load may be far below.
            self.level = self._loads[self._by_load[self._start - 1]]
        else:
            self.level -= 1
        while self._start > 0 and self._loads[self._by_load[self._start - 1]] == self.level:
            self._start -= 1
        self._position = self._end - 1

    def _skip(self) -> None:
        """Swaps the member with the last of the round, which has given already."""
        members, last = self._by_load, self._end - 1
        members[self._position], members[last] = members[last], members[self._position]
        self._end = last
        self._position -= 1
