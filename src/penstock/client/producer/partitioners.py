"""Partitioners: by key, round robin, sticky, or a function of the user."""

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol, cast, runtime_checkable

from penstock.client.errors import ConfigError, UnknownTopicError
from penstock.net.client.cluster import Cluster
from penstock.records._murmur2 import murmur2, partition_of_key

__all__ = [
    "BuiltInPartitioner",
    "PartitionFunction",
    "Partitioner",
    "RoundRobinPartitioner",
    "murmur2",
    "partition_for_key",
    "partitioner_of",
]


@runtime_checkable
class Partitioner(Protocol):
    """Chooses the partition of records that were sent without one. Must be thread-safe."""

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Returns the partition, from 0 on. Any other number fails the `send`, as in Java."""
        ...

    def close(self) -> None: ...


PartitionFunction = Callable[[bytes | None, int], int]
"""Returns the partition for a serialized key and a number of partitions."""


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key, the same as in every Kafka client."""
    return partition_of_key(key, partition_count)


def _random_31_bits() -> int:
    return random.getrandbits(31)


def _available(cluster: Cluster, topic: str) -> tuple[list[int], int]:
    """Returns the partitions that have a leader, and the number of all partitions."""
    info = cluster.topics.get(topic)
    if info is None or not info.partitions:
        raise UnknownTopicError(f"topic {topic!r} has no partitions in the metadata of this client")
    nodes = cluster.nodes
    available = [entry.partition for entry in info.partitions if entry.leader in nodes]
    return available, len(info.partitions)


class BuiltInPartitioner:
    """Chooses sticky partitions for one topic: a partition gets a batch, then another is chosen.

    After `update_load`, partitions with shorter queues are chosen more often. Used under the
    accumulator's lock.
    """

    def __init__(
        self,
        topic: str,
        sticky_batch_size: int,
        rng: Callable[[], int] = _random_31_bits,
    ) -> None:
        """`rng` returns integers from 0 to below 2**31."""
        self._topic = topic
        self.limit = max(sticky_batch_size, 1)
        self.partition = -1
        """The current partition; -1 before the first choice."""
        self.produced = 0
        """The bytes appended to the current partition; from `limit` on, it is due to change."""
        self._rng = rng
        self._load: tuple[list[int], list[int]] | None = None
        """Cumulative weights, and the partitions they belong to."""
        self._cluster: Cluster | None = None
        self._available: list[int] = []
        self._partition_count = 0

    def current(self, cluster: Cluster) -> int:
        """Returns the current partition."""
        if self.partition < 0:
            self.partition = self._next(cluster)
        return self.partition

    def appended(self, size: int, cluster: Cluster, can_switch: bool) -> None:
        """Records that `size` bytes were appended to the current partition.

        After `limit` bytes another partition is chosen, if that leaves no batch behind that is not
        full (`can_switch`); after twice as many bytes in any case.
        """
        self.produced += size
        if self.produced >= self.limit and (can_switch or self.produced >= 2 * self.limit):
            self.partition = self._next(cluster)
            self.produced = 0

    def update_load(
        self, queue_sizes: Sequence[int] | None, partitions: Sequence[int], total: int
    ) -> None:
        """Sets the queue sizes of `partitions`, those that are available.

        `total` counts all queues, including those left out. With None the choice is uniform.
        """
        self._load = None
        if queue_sizes is None or not queue_sizes or total < 2:
            return
        highest = max(queue_sizes)
        if len(queue_sizes) == total and min(queue_sizes) == highest:
            return
        sums: list[int] = []
        weight_sum = 0
        for size in queue_sizes:
            weight_sum += highest + 1 - size
            sums.append(weight_sum)
        self._load = sums, list(partitions)

    def _next(self, cluster: Cluster) -> int:
        number = self._rng()
        if self._load is not None:
            sums, partitions = self._load
            return partitions[bisect_right(sums, number % sums[-1])]
        if cluster is not self._cluster:
            self._available, self._partition_count = _available(cluster, self._topic)
            self._cluster = cluster
        if self._available:
            return self._available[number % len(self._available)]
        return number % self._partition_count


class RoundRobinPartitioner:
    """Uses the partitions that have a leader in turn, whatever the key, from a random one on."""

    def __init__(self, rng: Callable[[], int] = _random_31_bits) -> None:
        self._rng = rng
        self._counters: dict[str, count[int]] = {}

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        counter = self._counters.get(topic)
        if counter is None:
            # `setdefault`, so that two threads that get here at once share one counter.
            counter = self._counters.setdefault(topic, count(self._rng()))
        number = next(counter)
        available, total = _available(cluster, topic)
        return available[number % len(available)] if available else number % total

    def close(self) -> None:
        """Does nothing."""


class _FunctionPartitioner:
    def __init__(self, function: PartitionFunction) -> None:
        self._function = function

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        return self._function(key_bytes, _available(cluster, topic)[1])

    def close(self) -> None:
        """Does nothing."""


_ROUND_ROBIN = frozenset({"round_robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"})
_BUILT_IN = frozenset({"", "default", "murmur2", "sticky"})


def partitioner_of(setting: object) -> Partitioner | None:
    """Returns the partitioner of the setting `partitioner`; None for the built-in one.

    The setting is None or "default", "round_robin", an object with `partition` (see `Partitioner`)
    or its class, or a function of the serialized key and the number of partitions. Raises
    ConfigError for anything else.
    """
    if setting is None or (isinstance(setting, str) and setting.lower() in _BUILT_IN):
        return None
    if isinstance(setting, str) and setting in _ROUND_ROBIN:
        return RoundRobinPartitioner()
    if isinstance(setting, type) and hasattr(setting, "partition"):
        setting = setting()
    if isinstance(setting, Partitioner):
        return setting
    if callable(setting):
        return _FunctionPartitioner(cast(PartitionFunction, setting))
    raise ConfigError(
        f"partitioner={setting!r}",
        remedy='use "default", "round_robin", an object with partition(topic, key, key_bytes, '
        "value, value_bytes, cluster) and close(), or a function of the key's bytes and the "
        "number of partitions",
    )
