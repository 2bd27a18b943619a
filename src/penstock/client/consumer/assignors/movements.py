"""Which partitions went from one consumer to another while an assignment was balanced."""

from penstock.client.consumer.assignors.java_order import first_in_hash_order
from penstock.core.ids import TopicPartition

Pair = tuple[str, str]
"""From one consumer, to another."""


class PartitionMovements:
    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, Pair] = {}
        self._by_topic: dict[str, dict[Pair, dict[TopicPartition, None]]] = {}
        self._largest: dict[tuple[str, Pair], int] = {}
        """How large each set of partitions has been; Java's sets never shrink."""

    def move(self, partition: TopicPartition, source: str, target: str) -> None:
        """Note a movement; several of one partition count as one from its first consumer."""
        before = self._pairs.get(partition)
        if before is None:
            self._add(partition, (source, target))
            return
        self._remove(partition, before)
        if before[0] != target:
            self._add(partition, (before[0], target))

    def instead_of(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move rather than this one.

        If one of the same topic has gone from `target` to `source`, it is better to send it back.
        """
        of_topic = self._by_topic.get(partition.topic)
        if of_topic is None:
            return partition
        before = self._pairs.get(partition)
        if before is not None:
            source = before[0]
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
