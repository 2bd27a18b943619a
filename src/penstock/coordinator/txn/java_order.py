"""The order in which Kafka's transaction records list partitions: that of Java's hash tables.

Java keeps entries of one bucket in the order of insertion. Here they are sorted by topic and
number, so that a set has one order, whatever its history.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from penstock.core.ids import TopicPartition
from penstock.core.java_hash import bucket, partition_hash, string_hash, table_size

T = TypeVar("T")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partitions of each topic, in the order in which Kafka writes them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in _table_order(sorted(partitions), _partition_hash):
        grouped.setdefault(topic, []).append(partition)
    return {topic: grouped[topic] for topic in _table_order(list(grouped), _topic_hash)}


def _table_order(keys: list[T], hash_of: Callable[[T], int]) -> list[T]:
    if len(keys) < 2:
        return keys
    size = table_size(len(keys))
    return sorted(keys, key=lambda key: bucket(hash_of(key), size))


@lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    return string_hash(topic)


def _partition_hash(partition: TopicPartition) -> int:
    return partition_hash(partition, _topic_hash(partition.topic))
