"""Sticky assignment where members subscribe to different topics.

Members keep what they own and may own; what is left goes to the member with the least; then
partitions are moved for as long as that makes the shares more even.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from penstock.client.consumer.assignors.java_order import string_order
from penstock.client.consumer.assignors.model import Subscription, TopicRacks, partitions_of
from penstock.client.consumer.assignors.movements import PartitionMovements
from penstock.client.consumer.assignors.sticky_racks import RackInfo
from penstock.core.ids import TopicPartition


class _BySize:
    """Consumers, those with the fewest partitions first."""

    def __init__(self, assignment: dict[str, list[TopicPartition]]) -> None:
        self._assignment = assignment
        self._sorted: list[tuple[int, bytes, str]] = sorted(map(self._entry, assignment))

    def _entry(self, consumer: str) -> tuple[int, bytes, str]:
        return len(self._assignment[consumer]), string_order(consumer), consumer

    def add(self, consumer: str) -> None:
        insort(self._sorted, self._entry(consumer))

    def remove(self, consumer: str) -> None:
        """To be called before its partitions change."""
        entry = self._entry(consumer)
        index = bisect_left(self._sorted, entry)
        if index < len(self._sorted) and self._sorted[index] == entry:
            del self._sorted[index]

    def __iter__(self) -> Iterator[str]:
        return (consumer for _, _, consumer in self._sorted)

    def spread(self) -> tuple[int, int]:
        """The smallest and the largest number of partitions."""
        return self._sorted[0][0], self._sorted[-1][0]


class GeneralAssignment:
    def __init__(
        self,
        topics: TopicRacks,
        racks: RackInfo,
        owned: dict[str, list[TopicPartition]],
        subscriptions: Mapping[str, Subscription],
        earlier: Mapping[TopicPartition, str],
    ) -> None:
        """`earlier`: who had a partition in a generation before that of its owner."""
        self._topics = topics
        self._racks = racks
        self._earlier = earlier
        self._total = sum(len(of_topic) for of_topic in topics.values())
        self._wants = {
            member: frozenset(topic for topic in subscription.topics if topic in topics)
            for member, subscription in subscriptions.items()
        }
        self._listed = {
            member: [topic for topic in subscription.topics if topic in topics]
            for member, subscription in subscriptions.items()
        }
        self._consumers: dict[str, list[str]] = {topic: [] for topic in topics}
        for member, listed in self._listed.items():
            for topic in listed:
                self._consumers[topic].append(member)
        self._revocation_required = False
        self._assignment: dict[str, list[TopicPartition]] = {}
        self._owner: dict[TopicPartition, str] = {}
        for member, partitions in owned.items():
            self._keep_owned(member, partitions)
        order = sorted(topics, key=lambda t: (len(self._consumers[t]), string_order(t)))
        self._all = [p for topic in order for p in partitions_of(topic, len(topics[topic]))]
        self._by_size = _BySize(self._assignment)
        self._movements = PartitionMovements()

    def _keep_owned(self, member: str, partitions: list[TopicPartition]) -> None:
        kept = self._assignment[member] = []
        for partition in partitions:
            if partition.topic not in self._wants[member] or self._racks.mismatch(
                member, partition
            ):
                self._revocation_required = True
            else:
                kept.append(partition)
            self._owner[partition] = member

    def build(self) -> dict[str, list[TopicPartition]]:
        taken = {p for partitions in self._assignment.values() for p in partitions}
        unassigned = [partition for partition in self._all if partition not in taken]
        initializing = self._by_size.spread()[1] == 0
        self._assign_new(unassigned)

        # Only what several members could have is worth a look.
        everything = [p for p in self._all if len(self._consumers[p.topic]) >= 2]
        new = [p for p in unassigned if len(self._consumers[p.topic]) >= 2]
        fixed = {}
        for member in self._wants:
            if not self._can_take_part(member):
                self._by_size.remove(member)
                fixed[member] = self._assignment.pop(member)

        before = {member: list(partitions) for member, partitions in self._assignment.items()}
        if not self._revocation_required:
            self._reassign(new)
        moved = self._reassign(everything)
        if not initializing and moved and _score(self._assignment) >= _score(before):
            self._assignment = before
        return self._assignment | fixed

    def _assign_new(self, unassigned: list[TopicPartition]) -> None:
        left = unassigned
        if self._racks.consumers:
            left = [p for p in left if not self._assign_to_least(p, match_racks=True)]
        for partition in left:
            self._assign_to_least(partition, match_racks=False)

    def _assign_to_least(self, partition: TopicPartition, *, match_racks: bool) -> bool:
        for consumer in self._by_size:
            if partition.topic in self._wants[consumer] and not (
                match_racks and self._racks.mismatch(consumer, partition)
            ):
                self._by_size.remove(consumer)
                self._assignment[consumer].append(partition)
                self._owner[partition] = consumer
                self._by_size.add(consumer)
                return True
        return False

    def _most_possible(self, consumer: str) -> int:
        listed = self._listed[consumer]
        if len(listed) == len(self._topics):
            return self._total
        return sum(len(self._topics[topic]) for topic in listed)

    def _can_take_part(self, consumer: str) -> bool:
        current = self._assignment[consumer]
        return len(current) < self._most_possible(consumer) or any(
            len(self._consumers[partition.topic]) >= 2 for partition in current
        )

    def _is_balanced(self) -> bool:
        smallest, largest = self._by_size.spread()
        if smallest >= largest - 1:
            return True
        for consumer in self._by_size:
            size = len(self._assignment[consumer])
            if size == self._most_possible(consumer):
                continue
            if size + 1 >= largest:
                # Nobody has two more than it: so it is for all that follow.
                return True
            for topic in self._listed[consumer]:
                for partition in range(len(self._topics[topic])):
                    owner = self._owner[TopicPartition(topic, partition)]
                    if size + 1 < len(self._assignment[owner]):
                        return False
        return True

    def _reassign(self, partitions: list[TopicPartition]) -> bool:
        """Move partitions until no movement makes it more even; whether any moved."""
        performed = False
        modified = True
        while modified:
            modified = False
            for partition in partitions:
                if self._is_balanced():
                    break
                if self._improve(partition):
                    modified = performed = True
        return performed

    def _improve(self, partition: TopicPartition) -> bool:
        owner = self._owner[partition]
        size = len(self._assignment[owner])
        earlier = self._earlier.get(partition)
        # Only to a member that still wants the topic; Kafka does not look at that.
        if (
            earlier is not None
            and partition.topic in self._wants[earlier]
            and size > len(self._assignment[earlier]) + 1
        ):
            self._move(partition, earlier)
            return True
        if any(size > len(self._assignment[c]) + 1 for c in self._consumers[partition.topic]):
            target = next(c for c in self._by_size if partition.topic in self._wants[c])
            self._move(partition, target)
            return True
        return False

    def _move(self, partition: TopicPartition, target: str) -> None:
        partition = self._movements.instead_of(partition, self._owner[partition], target)
        source = self._owner[partition]
        self._by_size.remove(source)
        self._by_size.remove(target)
        self._movements.move(partition, source, target)
        self._assignment[source].remove(partition)
        self._assignment[target].append(partition)
        self._owner[partition] = target
        self._by_size.add(target)
        self._by_size.add(source)


def _score(assignment: Mapping[str, list[TopicPartition]]) -> int:
    """The differences between the shares of all pairs of members, summed up."""
    sizes = sorted(map(len, assignment.values()))
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
