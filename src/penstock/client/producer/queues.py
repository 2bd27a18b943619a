"""The queues of batches, from the sender's side.

The sender asks which nodes have something `ready`, and drains it. A batch that fails comes back to
the front of its queue.
"""

from collections import deque
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Final, NamedTuple, Protocol

from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.future import BatchResult
from penstock.client.producer.idempotence import is_after
from penstock.client.producer.partitioners import BuiltInPartitioner
from penstock.client.producer.ratios import CompressionRatios
from penstock.client.settings import ProducerOptions
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.backoff import Backoff
from penstock.net.client.cluster import Cluster, PartitionInfo
from penstock.records.compress import Compression

NEVER: Final = 2**63 - 1


class SequenceSource(Protocol):
    """What an idempotent producer decides while batches are drained.

    Called on the sender's thread under the accumulator's lock: take no lock that is held while
    somebody appends.
    """

    @property
    def is_completing(self) -> bool:
        """Whether a transaction is being committed or aborted, so that everything is sent now."""
        ...

    def should_stop_drain(self, batch: ProducerBatch, tp: TopicPartition) -> bool:
        """Whether this batch, the first of its partition, must wait."""
        ...

    def assign(self, batch: ProducerBatch) -> None:
        """A batch without a sequence is sent: give it one and keep track of it."""
        ...

    def track(self, batch: ProducerBatch) -> None:
        """Keep track of a part of a batch that was split; it has its sequence."""
        ...


class Ready(NamedTuple):
    """What the sender can do now, and when to look again."""

    nodes: set[int]
    next_check_ms: int
    """How long until more can be ready; NEVER where nothing else waits."""

    unknown_leader_topics: set[str]
    """Topics with records for partitions whose leader is not known."""


class TopicQueues:
    """The batches of each partition that was ever sent to, the oldest first."""

    __slots__ = ("partitioner", "queues")

    def __init__(self, partitioner: BuiltInPartitioner) -> None:
        self.queues: dict[int, deque[ProducerBatch]] = {}
        self.partitioner = partitioner


class _NodeLatency:
    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now_ms: int) -> None:
        self.ready_ms = now_ms
        self.drain_ms = now_ms


class BatchQueues:
    """The queues of all partitions. Any thread may call anything; one lock guards it all."""

    def __init__(
        self,
        settings: ProducerOptions,
        pool: BufferPool,
        *,
        sequences: SequenceSource | None,
    ) -> None:
        self.pool = pool
        self.next_expiry_ms = NEVER
        """No batch in a queue reaches its delivery timeout before."""
        self._sequences = sequences
        self._batch_size = settings["batch_size"]
        self._linger_ms = settings["linger_ms"]
        self._delivery_timeout_ms = settings["delivery_timeout_ms"]
        self._adaptive = settings["partitioner_adaptive_partitioning_enable"]
        self._availability_timeout_ms = settings["partitioner_availability_timeout_ms"]
        self._backoff = Backoff(settings["retry_backoff_ms"], settings["retry_backoff_max_ms"])
        self._ratios = CompressionRatios()
        self._lock = Lock()
        self._topics: dict[str, TopicQueues] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        """All batches that are neither in the log nor given up, in the order they were begun."""
        self._muted: set[TopicPartition] = set()
        self._node_latency: dict[int, _NodeLatency] = {}
        self._drain_next: dict[int, TopicPartition] = {}
        """The partition of each node that had no room in its last request."""
        self._flushes = 0
        self._closed = False

    # What can be sent

    def ready(self, cluster: Cluster, now_ms: int) -> Ready:
        """The nodes that something can be sent to.

        A node is ready when it leads a partition that is not muted and whose first batch is not
        backing off, and that batch is full, has waited for `linger_ms`, or everything is to be
        sent: memory is short, somebody flushes, a transaction ends, the producer closes.
        """
        nodes: set[int] = set()
        unknown: set[str] = set()
        next_check_ms = NEVER
        with self._lock:
            send_all = (
                self.pool.waiting > 0
                or self._closed
                or self._flushes > 0
                or (self._sequences is not None and self._sequences.is_completing)
            )
            for topic, topic_queues in self._topics.items():
                next_check_ms = min(
                    next_check_ms,
                    self._topic_ready(
                        cluster, now_ms, topic, topic_queues, send_all, nodes, unknown
                    ),
                )
        return Ready(nodes, next_check_ms, unknown)

    def _topic_ready(
        self,
        cluster: Cluster,
        now_ms: int,
        topic: str,
        topic_queues: TopicQueues,
        send_all: bool,
        nodes: set[int],
        unknown: set[str],
    ) -> int:
        """Adds the nodes that are ready; how long until more can be. Notes the load as well."""
        next_check_ms = NEVER
        known = cluster.topics.get(topic)
        partitions = known.partitions if known is not None else ()
        # Adaptive choice begins when every partition has a queue: those without would never be
        # chosen.
        adaptive = self._adaptive and len(topic_queues.queues) >= len(partitions)
        sizes: list[int] = []
        available: list[int] = []
        for partition, queue in topic_queues.queues.items():
            info = partitions[partition] if partition < len(partitions) else None
            leader = -1 if info is None or info.leader not in cluster.nodes else info.leader
            if info is not None and leader != -1 and self._is_available(queue, leader):
                sizes.append(len(queue))
                available.append(partition)
            if not queue:
                continue
            if info is None or leader == -1:
                unknown.add(topic)
                continue
            batch = queue[0]
            batch.update_leader_epoch(info.leader_epoch)
            if leader in nodes or (self._muted and batch.topic_partition in self._muted):
                continue
            waited_ms = batch.waited_time_ms(now_ms)
            backoff_ms = self._backoff_ms(batch)
            if waited_ms < backoff_ms:
                next_check_ms = min(next_check_ms, backoff_ms - waited_ms)
            elif send_all or len(queue) > 1 or batch.is_full or waited_ms >= self._linger_ms:
                nodes.add(leader)
            else:
                next_check_ms = min(next_check_ms, self._linger_ms - waited_ms)
        topic_queues.partitioner.update_load(
            sizes if adaptive else None, available, len(topic_queues.queues)
        )
        return next_check_ms

    def _is_available(self, queue: "deque[ProducerBatch]", leader: int) -> bool:
        """Whether the built-in partitioner may choose a partition of this leader."""
        if self._availability_timeout_ms <= 0 or not queue:
            return True
        latency = self._node_latency.get(leader)
        return (
            latency is None or latency.ready_ms - latency.drain_ms <= self._availability_timeout_ms
        )

    def _backoff_ms(self, batch: ProducerBatch) -> int:
        """How long after its last attempt a batch waits for the next."""
        if batch.attempts == 0 or batch.has_new_leader:
            return 0
        return self._backoff.delay_ms(batch.attempts - 1)

    def drain(
        self, cluster: Cluster, nodes: Collection[int], max_size: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """Take what fits into one request of `max_size` bytes for each node: closed batches.

        At most one batch for a partition; nodes without any are left out. A request may be larger
        if a single batch is.
        """
        drained: dict[int, list[ProducerBatch]] = {}
        for node, candidates in self._candidates(cluster, nodes).items():
            batches = self._drain_node(node, candidates, max_size, now_ms)
            if batches:
                drained[node] = batches
        return drained

    def _candidates(
        self, cluster: Cluster, nodes: Collection[int]
    ) -> dict[int, list[PartitionInfo]]:
        """The partitions of each node that have batches."""
        found: dict[int, list[PartitionInfo]] = {}
        with self._lock:
            for topic, topic_queues in self._topics.items():
                known = cluster.topics.get(topic)
                partitions = known.partitions if known is not None else ()
                for partition, queue in topic_queues.queues.items():
                    if queue and partition < len(partitions):
                        info = partitions[partition]
                        if info.leader in nodes:
                            found.setdefault(info.leader, []).append(info)
        return found

    def _drain_node(
        self, node: int, candidates: list[PartitionInfo], max_size: int, now_ms: int
    ) -> list[ProducerBatch]:
        size = 0
        drained: list[ProducerBatch] = []
        for info in self._in_turn(node, candidates):
            tp = TopicPartition(info.topic, info.partition)
            with self._lock:
                queue = self._topics[info.topic].queues[info.partition]
                if not queue or tp in self._muted:
                    continue
                batch = queue[0]
                batch.update_leader_epoch(info.leader_epoch)
                if batch.waited_time_ms(now_ms) < self._backoff_ms(batch):
                    continue
                if drained and size + batch.size_in_bytes > max_size:
                    self._drain_next[node] = tp
                    break
                if self._sequences is not None:
                    if self._sequences.should_stop_drain(batch, tp):
                        continue
                    if not batch.has_sequence:
                        self._sequences.assign(batch)
                queue.popleft()
            # Compression and the CRC take their time: without the lock.
            first_time = not batch.is_closed
            size += len(batch.close())
            if first_time and batch.compression is not Compression.NONE:
                self._ratios.observe(tp.topic, batch.compression_ratio)
            batch.drained(now_ms)
            drained.append(batch)
        return drained

    def _in_turn(self, node: int, candidates: list[PartitionInfo]) -> Iterable[PartitionInfo]:
        """All of them, beginning with the one that had no room last time."""
        first = self._drain_next.pop(node, None)
        for index, info in enumerate(candidates):
            if first == (info.topic, info.partition):
                return candidates[index:] + candidates[:index]
        return candidates

    def update_node_latency(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """A node had something ready; whether it could be sent. See
        `partitioner_availability_timeout_ms`.
        """
        if self._availability_timeout_ms <= 0:
            return
        with self._lock:
            latency = self._node_latency.get(node_id)
            if latency is None:
                latency = self._node_latency[node_id] = _NodeLatency(now_ms)
            if can_drain:
                latency.drain_ms = now_ms
            latency.ready_ms = now_ms

    # What comes back

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """A batch failed and is to be sent again: before all others of its partition.

        Batches with sequences stay in the order of these.
        """
        batch.reenqueued(now_ms)
        with self._lock:
            self._enqueue_again(batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """A batch was too large for the broker: its records go into smaller ones. How many.

        What is left of the batch itself is for `complete_and_deallocate`.
        """
        topic = batch.topic_partition.topic
        self._ratios.reset(topic, batch.compression_ratio)
        size = self._batch_size
        if batch.is_split:
            size = max(batch.largest_record(), batch.size_in_bytes // 2)
        parts = batch.split(size, self._ratios.estimate(topic))
        with self._lock:
            for part in reversed(parts):
                self._incomplete[part] = None
                if self._sequences is not None:
                    self._sequences.track(part)
                self._enqueue_again(part)
        return len(parts)

    def _enqueue_again(self, batch: ProducerBatch) -> None:
        topic, partition = batch.topic_partition
        queue = self._topic_queues(topic).queues.setdefault(partition, deque())
        at = 0
        if self._sequences is not None:
            if not batch.has_sequence:
                raise ValueError(f"{batch!r} comes back without the sequence it was sent with")
            while (
                at < len(queue)
                and queue[at].has_sequence
                and is_after(batch.base_sequence, queue[at].base_sequence)
            ):
                at += 1
        queue.insert(at, batch)
        self._note_expiry(batch)

    def _topic_queues(self, topic: str) -> TopicQueues:
        found = self._topics.get(topic)
        if found is None:
            found = TopicQueues(BuiltInPartitioner(topic, self._batch_size))
            self._topics[topic] = found
        return found

    def _note_expiry(self, batch: ProducerBatch) -> None:
        self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    def expired_batches(self, now_ms: int) -> list[ProducerBatch]:
        """Batches that were in a queue until their delivery timeout; they are in none any more.

        The caller fails them, and calls `complete_and_deallocate`.
        """
        expired: list[ProducerBatch] = []
        with self._lock:
            self.next_expiry_ms = NEVER
            for topic_queues in self._topics.values():
                for queue in topic_queues.queues.values():
                    while queue and queue[0].has_reached_delivery_timeout(
                        self._delivery_timeout_ms, now_ms
                    ):
                        batch = queue.popleft()
                        batch.close_for_appends()
                        expired.append(batch)
                    if queue:
                        self._note_expiry(queue[0])
        return expired

    def mute(self, tp: TopicPartition) -> None:
        """Send nothing to a partition, so that a batch under way keeps its place."""
        with self._lock:
            self._muted.add(tp)

    def unmute(self, tp: TopicPartition) -> None:
        with self._lock:
            self._muted.discard(tp)

    # What is done

    def complete_batch(self, batch: ProducerBatch) -> None:
        """Nobody waits for this batch any more; it keeps its memory."""
        with self._lock:
            self._incomplete.pop(batch, None)

    def deallocate(self, batch: ProducerBatch) -> None:
        """Give the memory of a batch back, once. A request under way may still read it: then its
        block is not used again.
        """
        with self._lock:
            size, batch.allocated = batch.allocated, 0
        if size and not batch.is_split:
            self.pool.deallocate(batch.take_block(), size)

    def complete_and_deallocate(self, batch: ProducerBatch) -> None:
        self.complete_batch(batch)
        self.deallocate(batch)

    def begin_flush(self) -> None:
        """From now on nothing waits for more records; `end_flush` as often."""
        with self._lock:
            self._flushes += 1

    def end_flush(self) -> None:
        with self._lock:
            self._flushes -= 1

    def incomplete_results(self) -> list[BatchResult]:
        """Of all batches that are not done now: what a flush waits for."""
        with self._lock:
            return [batch.result for batch in self._incomplete]

    def has_incomplete(self) -> bool:
        """Whether there are batches that are not done, sent or not."""
        return bool(self._incomplete)

    def has_undrained(self) -> bool:
        """Whether there are batches in the queues."""
        with self._lock:
            return any(
                queue
                for topic_queues in self._topics.values()
                for queue in topic_queues.queues.values()
            )

    def abort_undrained(self, error: KafkaError) -> None:
        """Give up what was never sent."""
        with self._lock:
            aborted = [
                batch
                for batch in self._incomplete
                if not (batch.is_closed if self._sequences is None else batch.has_sequence)
            ]
            self._remove(aborted)
        self._abort(aborted, error)

    def abort_incomplete(self, error: KafkaError) -> None:
        """Give up everything, whether it was sent or not."""
        with self._lock:
            aborted = list(self._incomplete)
            self._remove(aborted)
        self._abort(aborted, error)

    def _remove(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            batch.close_for_appends()
            topic, partition = batch.topic_partition
            queue = self._topics[topic].queues.get(partition)
            if queue and batch in queue:
                queue.remove(batch)

    def _abort(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        for batch in batches:
            batch.abort(error)
            self.complete_batch(batch)
            # What is under way gives its memory back when its answer comes.
            if not batch.inflight:
                self.deallocate(batch)

    def close(self) -> None:
        """Take no more records; those that are there are ready at once."""
        with self._lock:
            self._closed = True
        self.pool.close()
