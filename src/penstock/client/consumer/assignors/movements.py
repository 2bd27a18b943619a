"""The movements of partitions between consumers while an assignment is balanced."""

from penstock.client.consumer.assignors.java_order import first_in_hash_order
from penstock.core.ids import TopicPartition

Pair = tuple[str, str]
"""The source and the target consumer."""


class PartitionMovements:
    """The movements so far, one at most for each partition."""

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, Pair] = {}
        self._by_topic: dict[str, dict[Pair, dict[TopicPartition, None]]] = {}
        self._largest: dict[tuple[str, Pair], int] = {}
        """The largest size of each set of partitions; Java's sets never shrink."""

    def move(self, partition: TopicPartition, source: str, target: str) -> None:
        """Notes a movement; several of one partition count as one from its first consumer."""
        previous = self._pairs.get(partition)
        if previous is None:
            self._add(partition, (source, target))
            return
        self._remove(partition, previous)
        if previous[0] != target:
            self._add(partition, (previous[0], target))

    def preferred_partition(
        self, partition: TopicPartition, source: str, target: str
    ) -> TopicPartition:
        """Returns the partition to move instead of this one.

        If one of the same topic was moved from `target` to `source`, it is moved back.
        """
        of_topic = self._by_topic.get(partition.topic)
        if of_topic is None:
            return partition
        previous = self._pairs.get(partition)
        if previous is not None:
            source = previous[0]
        pair = (target, source)
        moved = of_topic.get(pair)
        if not moved:
            return partition
        return first_in_hash_order(moved, self._largest[partition.topic, pair])

    def _add(self, partition: TopicPartition, pair: Pair) -> None:
        self._pairs[partition] = pair
        moved = self._by_topic.setdefault(partition.topic, {}).setdefault(pair, {})
        moved[partition] = None
        key = (partition.topic, pair)
        self._largest[key] = max(self._largest.get(key, 0), len(moved))

    def _remove(self, partition: TopicPartition, pair: Pair) -> None:
        del self._pairs[partition]
        of_topic = self._by_topic[partition.topic]
        del of_topic[pair][partition]
        if not of_topic[pair]:
            del of_topic[pair]
            del self._largest[partition.topic, pair]
        if not of_topic:
            del self._by_topic[partition.topic]
