"""Which partition a record goes to: by its key, in turn, sticky, or as the user says."""

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
    """Chooses a partition for records that name none. Any thread may ask."""

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """The partition, or -1 to leave the choice to the built-in partitioner."""
        ...

    def close(self) -> None: ...


PartitionFunction = Callable[[bytes | None, int], int]
"""From the serialized key and the number of partitions to a partition."""


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition that every client of Kafka sends this key to."""
    return partition_of_key(key, partition_count)


def _random_31_bits() -> int:
    return random.getrandbits(31)


def _available(cluster: Cluster, topic: str) -> tuple[list[int], int]:
    """The partitions that have a leader, and how many there are in all."""
    found = cluster.topics.get(topic)
    if found is None or not found.partitions:
        raise UnknownTopicError(f"topic {topic!r} has no partitions that this client knows of")
    nodes = cluster.nodes
    return [each.partition for each in found.partitions if each.leader in nodes], len(
        found.partitions
    )


class BuiltInPartitioner:
    """The sticky choice for one topic: a partition gets a batch, then another has its turn.

    Where `update_load` says how much waits for each partition, those with less are chosen more
    often. Used under the accumulator's lock.
    """

    def __init__(
        self,
        topic: str,
        sticky_batch_size: int,
        chance: Callable[[], int] = _random_31_bits,
    ) -> None:
        """`chance` gives whole numbers from 0 to below 2**31."""
        self._topic = topic
        self.limit = max(sticky_batch_size, 1)
        self.partition = -1
        """Whose turn it is, -1 before the first."""
        self.produced = 0
        """Bytes that went there since; from `limit` on, it is due to change."""
        self._chance = chance
        self._load: tuple[list[int], list[int]] | None = None
        """Running sums of weights, and the partitions that they are for."""
        self._cluster: Cluster | None = None
        self._available: list[int] = []
        self._partition_count = 0

    def current(self, cluster: Cluster) -> int:
        """The partition whose turn it is."""
        if self.partition < 0:
            self.partition = self._next(cluster)
        return self.partition

    def appended(self, size: int, cluster: Cluster, may_switch: bool) -> None:
        """`size` bytes went to the current partition.

        After `limit` bytes another has its turn, if that would not leave a batch
        behind that is not full (`may_switch`); after twice as much in any case.
        """
        self.produced += size
        if self.produced >= self.limit and (may_switch or self.produced >= 2 * self.limit):
            self.partition = self._next(cluster)
            self.produced = 0

    def update_load(
        self, queue_sizes: Sequence[int] | None, partitions: Sequence[int], total: int
    ) -> None:
        """Take over how many batches wait for each of `partitions`, those that can be sent to.

        `total` counts all queues, also those that were left out. None: the choice is uniform.
        """
        self._load = None
        if queue_sizes is None or not queue_sizes or total < 2:
            return
        highest = max(queue_sizes)
        if len(queue_sizes) == total and min(queue_sizes) == highest:
            return
        sums: list[int] = []
        running = 0
        for size in queue_sizes:
            running += highest + 1 - size
            sums.append(running)
        self._load = sums, list(partitions)

    def _next(self, cluster: Cluster) -> int:
        chance = self._chance()
        if self._load is not None:
            sums, partitions = self._load
            return partitions[bisect_right(sums, chance % sums[-1])]
        if cluster is not self._cluster:
            self._available, self._partition_count = _available(cluster, self._topic)
            self._cluster = cluster
        if self._available:
            return self._available[chance % len(self._available)]
        return chance % self._partition_count


class RoundRobinPartitioner:
    """Each partition that has a leader in turn, whatever the key, from a random one on."""

    def __init__(self, chance: Callable[[], int] = _random_31_bits) -> None:
        self._chance = chance
        self._turns: dict[str, count[int]] = {}

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        turns = self._turns.get(topic)
        if turns is None:
            # Of two threads that come first, one wins; both then take turns from the same.
            turns = self._turns.setdefault(topic, count(self._chance()))
        turn = next(turns)
        available, total = _available(cluster, topic)
        return available[turn % len(available)] if available else turn % total

    def close(self) -> None:
        """Nothing is held."""


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
        """Nothing is held."""


_ROUND_ROBIN = frozenset({"round_robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"})
_BUILT_IN = frozenset({"", "default", "murmur2", "sticky"})


def partitioner_of(given: object) -> Partitioner | None:
    """The partitioner that the setting `partitioner` means; None for the built-in one.

    None or "default"; "round_robin"; an object with `partition` (see `Partitioner`) or its class;
    or a function of the serialized key and the number of partitions.
    """
    if given is None or (isinstance(given, str) and given.lower() in _BUILT_IN):
        return None
    if isinstance(given, str) and given in _ROUND_ROBIN:
        return RoundRobinPartitioner()
    if isinstance(given, type) and hasattr(given, "partition"):
        given = given()
    if isinstance(given, Partitioner):
        return given
    if callable(given):
        return _FunctionPartitioner(cast(PartitionFunction, given))
    raise ConfigError(
        f'partitioner={given!r}: use "default", "round_robin", an object with partition(topic, '
        "key, key_bytes, value, value_bytes, cluster) and close(), or a function of the key's "
        "bytes and the number of partitions"
    )
