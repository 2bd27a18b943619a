"""Sticky assignment for members that all subscribe to the same topics: fast and balanced.

1. Every member keeps its partitions up to its share: the number of partitions divided by that of
   members, rounded up for as many members as there is a remainder for.
2. If racks matter, other partitions go to members in one of their racks.
3. The remaining partitions are assigned in turn.
"""

from penstock.client.consumer.assignors.java_order import (
    in_hash_order,
    sorted_strings,
    string_order,
)
from penstock.client.consumer.assignors.model import TopicRacks, partitions_of
from penstock.client.consumer.assignors.sticky_racks import RackInfo
from penstock.core.ids import TopicPartition


class ConstrainedAssignment:
    """One assignment; `transferring` are partitions that their owner must revoke first."""

    def __init__(
        self,
        topics: TopicRacks,
        racks: RackInfo,
        owned: dict[str, list[TopicPartition]],
        claimed_twice: set[TopicPartition],
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._owned = owned
        self._claimed_twice = claimed_twice
        self._revoked: dict[TopicPartition, str] = {}
        self._assigned: set[TopicPartition] = set()
        total = sum(len(of_topic) for of_topic in topics.values())
        self._min, self._with_extra = divmod(total, len(owned))
        self._max = self._min + (1 if self._with_extra else 0)
        self._at_max = 0
        """The number of members with the larger share; at most `_with_extra`."""
        self._below_min: list[str] = []
        self._at_min: list[str] = []
        self.assignment: dict[str, list[TopicPartition]] = {member: [] for member in owned}
        self.transferring: dict[TopicPartition, str] = {}

    def build(self) -> dict[str, list[TopicPartition]]:
        for consumer in in_hash_order(self._owned):
            self._keep_owned(consumer)
        self._below_min = sorted_strings(self._below_min)
        self._at_min = sorted_strings(self._at_min)
        remaining = [
            partition
            for topic in sorted_strings(self._topics)
            for partition in partitions_of(topic, len(self._topics[topic]))
            if partition not in self._assigned
        ]
        remaining = self._racks.fewest_neighbours_first(remaining)
        if self._racks.consumers:
            remaining = self._assign_by_rack(remaining)
        self._assign_in_turn(remaining)
        return self.assignment

    def _keep_owned(self, consumer: str) -> None:
        owned = []
        for partition in self._owned[consumer]:
            if self._racks.mismatch(consumer, partition):
                self._revoked[partition] = consumer
            elif partition not in self._claimed_twice:
                owned.append(partition)
        owned.sort(key=lambda p: (p.partition, string_order(p.topic)))
        if len(owned) < self._min:
            keep = len(owned)
            self._below_min.append(consumer)
        elif len(owned) >= self._max and self._at_max < self._with_extra:
            keep = self._max
            self._count_at_max()
        else:
            keep = self._min
            if self._at_max < self._with_extra:
                self._at_min.append(consumer)
        self.assignment[consumer].extend(owned[:keep])
        self._assigned.update(owned[:keep])
        self._revoked.update((partition, consumer) for partition in owned[keep:])

    def _count_at_max(self) -> None:
        self._at_max += 1
        if self._at_max == self._with_extra:
            # No other member may get one more.
            self._at_min.clear()

    def _assign_by_rack(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Assigns partitions to members in their racks; returns the others."""
        remaining = []
        next_index = 0
        for partition in partitions:
            consumer = None
            index = self._racks.next_consumer(partition, self._below_min, next_index)
            if index is not None:
                consumer = self._below_min[index]
                if len(self.assignment[consumer]) + 1 >= self._min:
                    self._below_min.remove(consumer)
                    if (
                        len(self.assignment[consumer]) + 1 < self._max
                        and self._at_max < self._with_extra
                    ):
                        self._at_min.append(consumer)
                else:
                    index += 1
                next_index = index % len(self._below_min) if self._below_min else 0
            else:
                index = self._racks.next_consumer(partition, self._at_min, 0)
                if index is not None:
                    consumer = self._at_min[index]
                    if len(self.assignment[consumer]) + 1 == self._max:
                        del self._at_min[index]
                        self._count_at_max()
            if consumer is None:
                remaining.append(partition)
            else:
                self._assign(partition, consumer)
        return remaining

    def _assign_in_turn(self, partitions: list[TopicPartition]) -> None:
        below = self._below_min
        index = 0
        for partition in partitions:
            if index >= len(below):
                index = 0
            consumer = below[index] if below else self._at_min.pop(0)
            self._assign(partition, consumer)
            if below:
                if len(self.assignment[consumer]) == self._min:
                    del below[index]
                    self._at_min.append(consumer)
                else:
                    index += 1

    def _assign(self, partition: TopicPartition, consumer: str) -> None:
        self.assignment[consumer].append(partition)
        former = self._revoked.get(partition, consumer)
        if former != consumer or partition in self._claimed_twice:
            self.transferring[partition] = consumer
