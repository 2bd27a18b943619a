"""An accumulator without a network: clusters, settings, and a sender that only drains."""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from typing import NamedTuple
from uuid import UUID

from penstock.client.producer.accumulator import RecordAccumulator, SequenceSource
from penstock.client.producer.appender import RecordAppender, RecordToAppend
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.future import DeliveryCallback, RecordFuture
from penstock.client.settings import ProducerOptions, resolve
from penstock.core.errors import ErrorCode
from penstock.net.client.cluster import Cluster, Node, PartitionInfo, TopicInfo
from penstock.records.read import read_records
from tests.support.clock import ManualClock

T = 1_700_000_000_000
"""The timestamp of records."""

NOW = 1_000
"""The monotonic time at which the clock starts."""


def cluster_of(
    topics: Mapping[str, int | Sequence[int]],
    *,
    epochs: Mapping[tuple[str, int], int] | None = None,
) -> Cluster:
    """Returns a cluster with topics, given by the number of partitions, led by node 0, or by the
    leaders of the partitions (-1 for none)."""
    topic_infos = {}
    nodes = {0}
    for number, (topic, leaders) in enumerate(topics.items(), 1):
        if isinstance(leaders, int):
            leaders = [0] * leaders
        partitions = tuple(
            PartitionInfo(
                topic,
                index,
                leader,
                (epochs or {}).get((topic, index), 0),
                (0,),
                (0,),
                (),
                ErrorCode.NONE,
            )
            for index, leader in enumerate(leaders)
        )
        nodes |= {leader for leader in leaders if leader >= 0}
        topic_infos[topic] = TopicInfo(topic, UUID(int=number), False, partitions, ErrorCode.NONE)
    return Cluster({node: Node(node, "host", 9092 + node) for node in nodes}, topic_infos)


def until(condition: Callable[[], bool]) -> None:
    """Waits for another thread, which sets no event."""
    deadline = monotonic() + 60
    while not condition():
        assert monotonic() < deadline
        sleep(0.0005)


def options(settings: Mapping[str, object] | None = None) -> ProducerOptions:
    return resolve(ProducerOptions, {"bootstrap_servers": "host:9092", **(settings or {})})


class Drained(NamedTuple):
    """A drained batch and the values in it."""

    batch: ProducerBatch
    values: list[bytes | None]


class AccumulatorFixture:
    """An accumulator with an appender, a pool and a clock."""

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        sequences: SequenceSource | None = None,
        **settings: object,
    ) -> None:
        self.cluster = cluster or cluster_of({"t": 1})
        self.settings = options(settings)
        self.clock = ManualClock(NOW)
        self.pool = BufferPool(self.settings["buffer_memory"], self.settings["batch_size"])
        self.wakes = 0
        self.accumulator = RecordAccumulator(self.settings, self.pool, sequences=sequences)
        self.appender = RecordAppender(self.settings, self.clock, self.accumulator, wake=self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def append(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "t",
        partition: int = 0,
        callback: DeliveryCallback | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        max_block_ms: int = 0,
    ) -> RecordFuture:
        record = RecordToAppend(topic, partition, T, key, value, headers, callback, self.cluster)
        return self.appender.append(record, max_block_ms, self.now_ms)

    def has_undrained(self) -> bool:
        """Whether there are batches in the queues, not yet sent."""
        with self.accumulator.lock:
            topics = self.accumulator.topics.values()
            return any(queue for topic in topics for queue in topic.queues.values())

    def ready(self) -> tuple[set[int], int, set[str]]:
        return self.accumulator.ready(self.cluster, self.now_ms)

    def drain(self, *, max_size: int = 1 << 20, nodes: set[int] | None = None) -> list[Drained]:
        """Drains one batch of each partition, whether it is ready or not."""
        nodes = set(self.cluster.nodes) if nodes is None else nodes
        drained = self.accumulator.drain(self.cluster, nodes, max_size, self.now_ms)
        return [
            Drained(batch, [record.value for record in read_records(batch.close())])
            for batches in drained.values()
            for batch in batches
        ]

    def deliver_all(self) -> list[Drained]:
        """Drains all batches, and acknowledges each at the end of its partition."""
        delivered: list[Drained] = []
        ends: dict[tuple[str, int], int] = {}
        while self.has_undrained():
            for drained in self.drain():
                end = ends.get(drained.batch.topic_partition, 0)
                drained.batch.complete(end)
                ends[drained.batch.topic_partition] = end + drained.batch.records_count
                self.accumulator.complete_and_deallocate(drained.batch)
                delivered.append(drained)
        return delivered
