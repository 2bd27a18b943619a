"""The racks of consumers and partitions, for the sticky assignors."""

from collections.abc import Mapping, Sequence

from penstock.client.consumer.assignors.model import Subscription, TopicRacks, racks_matter
from penstock.core.ids import TopicPartition

_NO_RACKS: frozenset[str] = frozenset()


class RackInfo:
    """The racks; `consumers` and `partitions` are empty if racks do not matter."""

    def __init__(self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]) -> None:
        racks = {
            member: subscription.rack_id
            for member, subscription in subscriptions.items()
            if subscription.rack_id
        }
        rack_sizes: dict[str, int] = {}
        for rack in racks.values():
            rack_sizes[rack] = rack_sizes.get(rack, 0) + 1
        partitions = {
            TopicPartition(topic, partition): replica_racks
            for topic, of_topic in (topics.items() if racks else ())
            for partition, replica_racks in enumerate(of_topic)
        }
        all_racks = {rack for replica_racks in partitions.values() for rack in replica_racks}
        matter = racks_matter(set(rack_sizes), all_racks, partitions.values())
        self.consumers: dict[str, str] = racks if matter else {}
        self.partitions: dict[TopicPartition, frozenset[str]] = partitions if matter else {}
        self._neighbours = {
            partition: sum(rack_sizes.get(rack, 0) for rack in replica_racks)
            for partition, replica_racks in partitions.items()
        }

    def mismatch(self, consumer: str, partition: TopicPartition) -> bool:
        """Returns whether the partition has no replica in the rack of the consumer."""
        rack = self.consumers.get(consumer)
        return rack is not None and rack not in self.partitions.get(partition, _NO_RACKS)

    def fewest_neighbours_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Returns partitions sorted by the number of consumers in their racks."""
        if not self._neighbours:
            return partitions
        return sorted(partitions, key=lambda partition: self._neighbours.get(partition, 0))

    def next_consumer(
        self, partition: TopicPartition, consumers: Sequence[str], first: int
    ) -> int | None:
        """Returns the index of the next consumer in a rack of the partition, from `first` on."""
        racks = self.partitions.get(partition)
        if not racks:
            return None
        for step in range(len(consumers)):
            index = (first + step) % len(consumers)
            if self.consumers.get(consumers[index]) in racks:
                return index
        return None
