"""The order in which Java's hash tables go through partitions, which is that of Kafka's records.

A table has a power of two of buckets, 16 at least, and is filled to three quarters at most. It is
gone through bucket by bucket. What shares a bucket comes in the order in which it was put in, with
Java; here in the order of topics and numbers, so that a set has one order, whatever its history.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from penstock.coordinator.partitioning import java_hash
from penstock.core.ids import TopicPartition

T = TypeVar("T")
_INT = 0xFFFFFFFF
_LEAST_BUCKETS = 16


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, in the order in which Kafka writes them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in _table_order(sorted(partitions), _partition_hash):
        grouped.setdefault(topic, []).append(partition)
    return {topic: grouped[topic] for topic in _table_order(list(grouped), _topic_hash)}


def _table_order(items: list[T], hash_of: Callable[[T], int]) -> list[T]:
    if len(items) < 2:
        return items
    buckets = _LEAST_BUCKETS
    while 4 * len(items) > 3 * buckets:
        buckets *= 2

    def bucket(item: T) -> int:
        code = hash_of(item)
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(items, key=bucket)


@lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    return java_hash(topic) & _INT


def _partition_hash(partition: TopicPartition) -> int:
    return (31 * (31 + partition.partition) + _topic_hash(partition.topic)) & _INT
