"""The choice of partitions (P1)."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import cycle

import pytest
from aiokafka.partitioner import murmur2 as python_murmur2

from penstock.client.errors import ConfigError, UnknownTopicError
from penstock.client.producer.partitioners import (
    BuiltInPartitioner,
    Partitioner,
    RoundRobinPartitioner,
    murmur2,
    partition_for_key,
    partitioner_of,
)
from penstock.net.client.cluster import Cluster
from penstock.records import _murmur2
from tests.support.client.accumulator import cluster_of
from tests.support.storage.compiled_modules import load_plain


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
        (b"\xff" * 5, None),
    ],
)
def test_murmur2_of_kafka(key: bytes, expected: int | None) -> None:
    """P1: the numbers are those of Kafka's own tests."""
    if expected is not None:
        assert murmur2(key) == expected
    assert load_plain(_murmur2).murmur2(key) == murmur2(key)
    assert python_murmur2(key) & 0xFFFFFFFF == murmur2(key) & 0xFFFFFFFF


def test_murmur2_is_the_same_as_in_other_clients() -> None:
    """P1: the same partition as aiokafka for many keys."""
    rng = random.Random(11)
    for _ in range(3000):
        key = rng.randbytes(rng.randrange(70))
        count = rng.randrange(1, 100)
        assert murmur2(key) & 0xFFFFFFFF == python_murmur2(key) & 0xFFFFFFFF
        expected = (python_murmur2(key) & 0x7FFFFFFF) % count
        assert partition_for_key(key, count) == expected
        assert 0 <= expected < count


def test_invalid_keys_and_counts() -> None:
    with pytest.raises(TypeError):
        murmur2("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot have 0 partitions"):
        partition_for_key(b"k", 0)


def from_list(*numbers: int) -> Callable[[], int]:
    turns = cycle(numbers)
    return lambda: next(turns)


def test_sticky_switches_after_a_batch() -> None:
    """P1: the partition changes after a batch, or after two if the batch is not full."""
    cluster = cluster_of({"t": 4})
    sticky = BuiltInPartitioner("t", 100, from_list(1, 2, 3, 0))
    assert sticky.current(cluster) == 1
    sticky.appended(99, cluster, True)
    assert sticky.current(cluster) == 1
    sticky.appended(1, cluster, False)
    assert sticky.current(cluster) == 1
    sticky.appended(0, cluster, True)
    assert sticky.current(cluster) == 2
    sticky.appended(199, cluster, False)
    assert sticky.current(cluster) == 2
    sticky.appended(1, cluster, False)
    assert sticky.current(cluster) == 3


def test_sticky_prefers_partitions_with_a_leader() -> None:
    """P1."""
    sticky = BuiltInPartitioner("t", 1, from_list(*range(6)))
    some = cluster_of({"t": [-1, 0, -1, 0]})
    partitions = set()
    for _ in range(6):
        partitions.add(sticky.current(some))
        sticky.appended(1, some, True)
    assert partitions == {1, 3}
    none = cluster_of({"t": [-1, -1, -1]})
    for _ in range(6):
        sticky.appended(1, none, True)
        partitions.add(sticky.current(none))
    assert partitions == {0, 1, 2, 3}


def test_sticky_of_an_unknown_topic() -> None:
    with pytest.raises(UnknownTopicError, match="'t'"):
        BuiltInPartitioner("t", 1).current(cluster_of({"other": 1}))


def choices(sticky: BuiltInPartitioner, cluster: Cluster, times: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for _ in range(times):
        sticky.appended(2, cluster, True)
        counts[sticky.current(cluster)] += 1
    return counts


def test_sticky_follows_the_load() -> None:
    """P1: partitions with shorter queues are chosen more often, as in KIP-794."""
    cluster = cluster_of({"t": 3})
    sticky = BuiltInPartitioner("t", 1, from_list(*range(8)))
    sticky.update_load([0, 3, 1], [0, 1, 2], 3)
    assert choices(sticky, cluster, 8) == {0: 4, 1: 1, 2: 3}
    # A partition that is not available is not chosen, even if the others are equal.
    sticky.update_load([2, 2], [0, 2], 3)
    assert choices(sticky, cluster, 8) == {0: 4, 2: 4}
    # Equal loads, a single partition and no load at all are uniform.
    for sizes, ids, total in (([2, 2, 2], [0, 1, 2], 3), ([], [], 3), ([5], [0], 1)):
        sticky.update_load(sizes, ids, total)
        assert set(choices(sticky, cluster, 9)) == {0, 1, 2}
    sticky.update_load(None, [], 3)
    assert set(choices(sticky, cluster, 9)) == {0, 1, 2}


def test_round_robin() -> None:
    """P1: from a random start, whatever the key, separately for each topic."""
    cluster = cluster_of({"t": 3, "u": 3, "half": [0, -1, 0], "none": [-1, -1]})

    def next_of(topic: str) -> int:
        return robin.partition(topic, b"k", b"k", None, None, cluster)

    robin = RoundRobinPartitioner(from_list(1, 2, 0, 5))
    assert [next_of("t") for _ in range(4)] == [1, 2, 0, 1]
    assert [next_of("u") for _ in range(4)] == [2, 0, 1, 2]
    assert [next_of("half") for _ in range(3)] == [0, 2, 0]
    assert [next_of("none") for _ in range(3)] == [1, 0, 1]
    starts = {
        RoundRobinPartitioner().partition("t", None, None, None, None, cluster) for _ in range(100)
    }
    assert starts == {0, 1, 2}
    with pytest.raises(UnknownTopicError):
        robin.partition("new", None, None, None, None, cluster)
    robin.close()


class LastPartition:
    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        return (cluster.partition_count(topic) or 0) - 1

    def close(self) -> None:
        """Nothing is held."""


def test_values_of_the_setting() -> None:
    """P1: pluggable."""
    cluster = cluster_of({"t": 5})

    def choose(partitioner: Partitioner | None) -> int:
        assert partitioner is not None
        return partitioner.partition("t", "k", b"kk", None, None, cluster)

    assert partitioner_of(None) is None
    assert partitioner_of("default") is None
    assert isinstance(partitioner_of("round_robin"), RoundRobinPartitioner)
    assert choose(partitioner_of(LastPartition())) == 4
    assert choose(partitioner_of(LastPartition)) == 4
    by_function = partitioner_of(lambda key, count: len(key) % count)
    assert choose(by_function) == 2
    assert by_function is not None
    by_function.close()
    with pytest.raises(ConfigError, match="round_robin"):
        partitioner_of("nearest")
    with pytest.raises(ConfigError, match="partitioner=7"):
        partitioner_of(7)
