"""Racks of consumers and partitions, as the sticky assignors look at them."""

from collections.abc import Mapping, Sequence

from penstock.client.consumer.assignors.model import Subscription, TopicRacks, racks_matter
from penstock.core.ids import TopicPartition

_NOWHERE: frozenset[str] = frozenset()


class RackInfo:
    """`consumers` and `partitions` are empty where racks do not matter."""

    def __init__(self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]) -> None:
        racks = {
            member: subscription.rack_id
            for member, subscription in subscriptions.items()
            if subscription.rack_id
        }
        in_rack: dict[str, int] = {}
        for rack in racks.values():
            in_rack[rack] = in_rack.get(rack, 0) + 1
        partitions = {
            TopicPartition(topic, partition): of_partition
            for topic, of_topic in (topics.items() if racks else ())
            for partition, of_partition in enumerate(of_topic)
        }
        everywhere = {rack for of_partition in partitions.values() for rack in of_partition}
        matter = racks_matter(set(in_rack), everywhere, partitions.values())
        self.consumers: dict[str, str] = racks if matter else {}
        self.partitions: dict[TopicPartition, frozenset[str]] = partitions if matter else {}
        self._neighbours = {
            partition: sum(in_rack.get(rack, 0) for rack in of_partition)
            for partition, of_partition in partitions.items()
        }

    def mismatch(self, consumer: str, partition: TopicPartition) -> bool:
        """The consumer has a rack, and the partition no replica there."""
        rack = self.consumers.get(consumer)
        return rack is not None and rack not in self.partitions.get(partition, _NOWHERE)

    def fewest_neighbours_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """By how many consumers are in the racks of a partition."""
        if not self._neighbours:
            return partitions
        return sorted(partitions, key=lambda partition: self._neighbours.get(partition, 0))

    def next_consumer(
        self, partition: TopicPartition, consumers: Sequence[str], first: int
    ) -> int | None:
        """The index of a consumer in a rack of the partition, searched from `first` onwards."""
        racks = self.partitions.get(partition)
        if not racks:
            return None
        for step in range(len(consumers)):
            index = (first + step) % len(consumers)
            if self.consumers.get(consumers[index]) in racks:
                return index
        return None
