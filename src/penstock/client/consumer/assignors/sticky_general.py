"""Sticky assignment for members that subscribe to different topics.

Members keep their partitions of subscribed topics; each other partition goes to the member with the
fewest; then partitions are moved as long as that balances the assignment.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from penstock.client.consumer.assignors.java_order import string_order
from penstock.client.consumer.assignors.model import Subscription, TopicRacks, partitions_of
from penstock.client.consumer.assignors.movements import PartitionMovements
from penstock.client.consumer.assignors.sticky_racks import RackInfo
from penstock.core.ids import TopicPartition


class _BySize:
    """Consumers by their number of partitions, the smallest first."""

    def __init__(self, assignment: dict[str, list[TopicPartition]]) -> None:
        self._assignment = assignment
        self._sorted: list[tuple[int, bytes, str]] = sorted(map(self._entry, assignment))

    def _entry(self, consumer: str) -> tuple[int, bytes, str]:
        return len(self._assignment[consumer]), string_order(consumer), consumer

    def add(self, consumer: str) -> None:
        insort(self._sorted, self._entry(consumer))

    def remove(self, consumer: str) -> None:
        """Must be called before the partitions of the consumer change."""
        entry = self._entry(consumer)
        index = bisect_left(self._sorted, entry)
        if index < len(self._sorted) and self._sorted[index] == entry:
            del self._sorted[index]

    def __iter__(self) -> Iterator[str]:
        return (consumer for _, _, consumer in self._sorted)

    def spread(self) -> tuple[int, int]:
        """Returns the smallest and the largest number of partitions."""
        return self._sorted[0][0], self._sorted[-1][0]


class GeneralAssignment:
    """One assignment."""

    def __init__(
        self,
        topics: TopicRacks,
        racks: RackInfo,
        owned: dict[str, list[TopicPartition]],
        subscriptions: Mapping[str, Subscription],
        earlier: Mapping[TopicPartition, str],
    ) -> None:
        """`earlier` has the owners of partitions in the generation before the current one."""
        self._topics = topics
        self._racks = racks
        self._earlier = earlier
        self._total = sum(len(of_topic) for of_topic in topics.values())
        self._subscribed = {
            member: frozenset(topic for topic in subscription.topics if topic in topics)
            for member, subscription in subscriptions.items()
        }
        self._topics_of = {
            member: [topic for topic in subscription.topics if topic in topics]
            for member, subscription in subscriptions.items()
        }
        self._consumers: dict[str, list[str]] = {topic: [] for topic in topics}
        for member, topic_list in self._topics_of.items():
            for topic in topic_list:
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
        retained = self._assignment[member] = []
        for partition in partitions:
            if partition.topic not in self._subscribed[member] or self._racks.mismatch(
                member, partition
            ):
                self._revocation_required = True
            else:
                retained.append(partition)
            self._owner[partition] = member

    def build(self) -> dict[str, list[TopicPartition]]:
        assigned = {p for partitions in self._assignment.values() for p in partitions}
        unassigned = [partition for partition in self._all if partition not in assigned]
        initializing = self._by_size.spread()[1] == 0
        self._assign_new(unassigned)

        # Only partitions that several members can own may be moved.
        everything = [p for p in self._all if len(self._consumers[p.topic]) >= 2]
        new = [p for p in unassigned if len(self._consumers[p.topic]) >= 2]
        fixed = {}
        for member in self._subscribed:
            if not self._can_participate(member):
                self._by_size.remove(member)
                fixed[member] = self._assignment.pop(member)

        previous = {member: list(partitions) for member, partitions in self._assignment.items()}
        if not self._revocation_required:
            self._reassign(new)
        moved = self._reassign(everything)
        if not initializing and moved and _score(self._assignment) >= _score(previous):
            self._assignment = previous
        return self._assignment | fixed

    def _assign_new(self, unassigned: list[TopicPartition]) -> None:
        remaining = unassigned
        if self._racks.consumers:
            remaining = [p for p in remaining if not self._assign_to_least(p, match_racks=True)]
        for partition in remaining:
            self._assign_to_least(partition, match_racks=False)

    def _assign_to_least(self, partition: TopicPartition, *, match_racks: bool) -> bool:
        for consumer in self._by_size:
            if partition.topic in self._subscribed[consumer] and not (
                match_racks and self._racks.mismatch(consumer, partition)
            ):
                self._by_size.remove(consumer)
                self._assignment[consumer].append(partition)
                self._owner[partition] = consumer
                self._by_size.add(consumer)
                return True
        return False

    def _most_possible(self, consumer: str) -> int:
        topic_list = self._topics_of[consumer]
        if len(topic_list) == len(self._topics):
            return self._total
        return sum(len(self._topics[topic]) for topic in topic_list)

    def _can_participate(self, consumer: str) -> bool:
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
                # No member has two more, neither than this one nor than the following ones.
                return True
            for topic in self._topics_of[consumer]:
                for partition in range(len(self._topics[topic])):
                    owner = self._owner[TopicPartition(topic, partition)]
                    if size + 1 < len(self._assignment[owner]):
                        return False
        return True

    def _reassign(self, partitions: list[TopicPartition]) -> bool:
        """Moves partitions until no movement is an improvement; returns whether any was moved."""
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
        # Only to a member that is still subscribed; Kafka does not check that.
        if (
            earlier is not None
            and partition.topic in self._subscribed[earlier]
            and size > len(self._assignment[earlier]) + 1
        ):
            self._move(partition, earlier)
            return True
        if any(size > len(self._assignment[c]) + 1 for c in self._consumers[partition.topic]):
            target = next(c for c in self._by_size if partition.topic in self._subscribed[c])
            self._move(partition, target)
            return True
        return False

    def _move(self, partition: TopicPartition, target: str) -> None:
        partition = self._movements.preferred_partition(partition, self._owner[partition], target)
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
    """Returns the sum of the differences between the numbers of all pairs of members."""
    sizes = sorted(map(len, assignment.values()))
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
