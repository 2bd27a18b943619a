"""The batches that wait to be sent, in a queue per partition.

Threads put records into the batches through `RecordAppender`. The sender looks up which nodes have
batches that are `ready`, drains them, and re-enqueues those that failed.
"""

from collections import deque
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Final, NamedTuple, Protocol

from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.compression_ratios import CompressionRatioEstimator
from penstock.client.producer.future import BatchResult
from penstock.client.producer.partitioners import BuiltInPartitioner
from penstock.client.producer.sequences import is_after
from penstock.client.settings import ProducerOptions
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.backoff import Backoff
from penstock.net.client.cluster import Cluster, PartitionInfo
from penstock.records.compress import Compression

NEVER: Final = 2**63 - 1


class SequenceSource(Protocol):
    """Assigns the sequences of an idempotent producer to batches as they are drained.

    Called on the sender's thread under the accumulator's lock: implementations must not take a
    lock that a thread holds while it appends.
    """

    @property
    def is_completing(self) -> bool:
        """Whether a transaction is being committed or aborted, so that all batches are ready."""
        ...

    def should_stop_drain(self, batch: ProducerBatch, tp: TopicPartition) -> bool:
        """Whether this batch, the first of its partition, must not be sent yet."""
        ...

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assigns a sequence to a batch that is about to be sent, and tracks it."""
        ...

    def add_in_flight(self, batch: ProducerBatch) -> None:
        """Tracks a part of a split batch, which has its sequence already."""
        ...


class ReadyCheckResult(NamedTuple):
    """The nodes that batches can be sent to now, and when to check again."""

    nodes: set[int]
    next_check_ms: int
    """The delay until more batches can become ready; NEVER if no other batch waits."""

    unknown_leader_topics: set[str]
    """Topics with batches for partitions whose leader is unknown."""


class TopicBatches:
    """The batches of one topic: a queue for each partition used so far, the oldest batch first."""

    __slots__ = ("partitioner", "queues")

    def __init__(self, partitioner: BuiltInPartitioner) -> None:
        self.queues: dict[int, deque[ProducerBatch]] = {}
        self.partitioner = partitioner


class _NodeLatency:
    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now_ms: int) -> None:
        self.ready_ms = now_ms
        self.drain_ms = now_ms


class RecordAccumulator:
    """The batches of all partitions. Thread-safe: one lock guards all of it."""

    def __init__(
        self,
        settings: ProducerOptions,
        pool: BufferPool,
        *,
        sequences: SequenceSource | None = None,
    ) -> None:
        self.pool = pool
        self.next_expiry_ms = NEVER
        """No batch in a queue reaches its delivery timeout before this time."""
        self._sequences = sequences
        self.batch_size = settings["batch_size"]
        self._linger_ms = settings["linger_ms"]
        self._delivery_timeout_ms = settings["delivery_timeout_ms"]
        self._adaptive = settings["partitioner_adaptive_partitioning_enable"]
        self._availability_timeout_ms = settings["partitioner_availability_timeout_ms"]
        self._backoff = Backoff(settings["retry_backoff_ms"], settings["retry_backoff_max_ms"])
        self.compression_ratios = CompressionRatioEstimator()
        self.lock = Lock()
        """Guards the queues and the batches in them."""
        self.topics: dict[str, TopicBatches] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        """All batches that are neither acknowledged nor failed, in the order of their creation."""
        self._muted: set[TopicPartition] = set()
        self._node_latency: dict[int, _NodeLatency] = {}
        self._drain_next: dict[int, TopicPartition] = {}
        """For each node, the partition that did not fit into its last request."""
        self._flushes_in_progress = 0
        self.is_closed = False

    # --- draining

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Returns the nodes that batches can be sent to.

        A node is ready when it leads a partition that is not muted and whose first batch is not
        backing off, and that batch is full or has waited for `linger_ms`. All batches are ready
        when memory is exhausted, during a flush, at the end of a transaction, and after `close`.
        """
        nodes: set[int] = set()
        unknown: set[str] = set()
        next_check_ms = NEVER
        with self.lock:
            send_all = (
                self.pool.waiting > 0
                or self.is_closed
                or self._flushes_in_progress > 0
                or (self._sequences is not None and self._sequences.is_completing)
            )
            for topic, topic_batches in self.topics.items():
                topic_check_ms = self._check_topic(
                    cluster, now_ms, topic, topic_batches, send_all, nodes, unknown
                )
                next_check_ms = min(next_check_ms, topic_check_ms)
        return ReadyCheckResult(nodes, next_check_ms, unknown)

    def _check_topic(
        self,
        cluster: Cluster,
        now_ms: int,
        topic: str,
        topic_batches: TopicBatches,
        send_all: bool,
        nodes: set[int],
        unknown: set[str],
    ) -> int:
        """Adds the ready nodes to `nodes`; returns the delay until more can become ready.

        Also updates the load statistics of the topic's partitioner.
        """
        next_check_ms = NEVER
        topic_info = cluster.topics.get(topic)
        partitions = topic_info.partitions if topic_info is not None else ()
        # Adaptive partitioning begins when every partition has a queue, because it never chooses
        # partitions without one.
        adaptive = self._adaptive and len(topic_batches.queues) >= len(partitions)
        sizes: list[int] = []
        available: list[int] = []
        for partition, queue in topic_batches.queues.items():
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
        topic_batches.partitioner.update_load(
            sizes if adaptive else None, available, len(topic_batches.queues)
        )
        return next_check_ms

    def _is_available(self, queue: "deque[ProducerBatch]", leader: int) -> bool:
        """Whether the built-in partitioner may choose a partition with this leader."""
        if self._availability_timeout_ms <= 0 or not queue:
            return True
        latency = self._node_latency.get(leader)
        return (
            latency is None or latency.ready_ms - latency.drain_ms <= self._availability_timeout_ms
        )

    def _backoff_ms(self, batch: ProducerBatch) -> int:
        """Returns the delay between the last attempt of a batch and the next."""
        if batch.attempts == 0 or batch.has_new_leader:
            return 0
        return self._backoff.delay_ms(batch.attempts - 1)

    def drain(
        self, cluster: Cluster, nodes: Collection[int], max_size: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """Removes and closes the batches that fit into one request of `max_size` bytes per node.

        Takes at most one batch of a partition; nodes without batches are left out. A request is
        larger than `max_size` only if its single batch is.
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
        """Returns the partitions of each node that have batches."""
        candidates: dict[int, list[PartitionInfo]] = {}
        with self.lock:
            for topic, topic_batches in self.topics.items():
                topic_info = cluster.topics.get(topic)
                partitions = topic_info.partitions if topic_info is not None else ()
                for partition, queue in topic_batches.queues.items():
                    if queue and partition < len(partitions):
                        info = partitions[partition]
                        if info.leader in nodes:
                            candidates.setdefault(info.leader, []).append(info)
        return candidates

    def _drain_node(
        self, node: int, candidates: list[PartitionInfo], max_size: int, now_ms: int
    ) -> list[ProducerBatch]:
        size = 0
        drained: list[ProducerBatch] = []
        for info in self._in_drain_order(node, candidates):
            tp = TopicPartition(info.topic, info.partition)
            with self.lock:
                queue = self.topics[info.topic].queues[info.partition]
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
                        self._sequences.assign_sequence(batch)
                queue.popleft()
            # Compression and the CRC are slow, so they run without the lock.
            is_first_attempt = not batch.is_closed
            size += len(batch.close())
            if is_first_attempt and batch.compression is not Compression.NONE:
                self.compression_ratios.observe(tp.topic, batch.compression_ratio)
            batch.drained(now_ms)
            drained.append(batch)
        return drained

    def _in_drain_order(
        self, node: int, candidates: list[PartitionInfo]
    ) -> Iterable[PartitionInfo]:
        """Returns the candidates, beginning with the one that did not fit last time."""
        first = self._drain_next.pop(node, None)
        for index, info in enumerate(candidates):
            if first == (info.topic, info.partition):
                return candidates[index:] + candidates[:index]
        return candidates

    def update_node_latency(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """Records that a node had ready batches, and whether they could be sent to it.

        Used for `partitioner_availability_timeout_ms`.
        """
        if self._availability_timeout_ms <= 0:
            return
        with self.lock:
            latency = self._node_latency.get(node_id)
            if latency is None:
                latency = self._node_latency[node_id] = _NodeLatency(now_ms)
            if can_drain:
                latency.drain_ms = now_ms
            latency.ready_ms = now_ms

    # --- retries and expiry

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Puts a failed batch back to the front of its queue, to be sent again.

        Batches with sequences are kept in the order of their sequences.
        """
        batch.reenqueued(now_ms)
        with self.lock:
            self._insert(batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Splits a batch that is too large for the broker and enqueues the parts.

        Returns their number. The caller then calls `complete_and_deallocate` for the batch itself.
        """
        topic = batch.topic_partition.topic
        self.compression_ratios.reset(topic, batch.compression_ratio)
        size = self.batch_size
        if batch.is_split:
            size = max(batch.largest_record(), batch.size_in_bytes // 2)
        parts = batch.split(size, self.compression_ratios.estimate(topic))
        with self.lock:
            for part in reversed(parts):
                self._incomplete[part] = None
                if self._sequences is not None:
                    self._sequences.add_in_flight(part)
                self._insert(part)
        return len(parts)

    def _insert(self, batch: ProducerBatch) -> None:
        topic, partition = batch.topic_partition
        queue = self.batches_of(topic).queues.setdefault(partition, deque())
        at = 0
        if self._sequences is not None:
            if not batch.has_sequence:
                raise ValueError(f"{batch!r} is re-enqueued without the sequence it was sent with")
            while (
                at < len(queue)
                and queue[at].has_sequence
                and is_after(batch.base_sequence, queue[at].base_sequence)
            ):
                at += 1
        queue.insert(at, batch)
        self._note_expiry(batch)

    def batches_of(self, topic: str) -> TopicBatches:
        """Returns the queues of a topic, created on first use. Call it with the lock held."""
        batches = self.topics.get(topic)
        if batches is None:
            batches = TopicBatches(BuiltInPartitioner(topic, self.batch_size))
            self.topics[topic] = batches
        return batches

    def enqueue_new(
        self, topic_batches: TopicBatches, partition: int, batch: ProducerBatch
    ) -> None:
        """Appends a new batch to its queue. Call it with the lock held."""
        topic_batches.queues.setdefault(partition, deque()).append(batch)
        self._incomplete[batch] = None
        self._note_expiry(batch)

    def _note_expiry(self, batch: ProducerBatch) -> None:
        self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    def expired_batches(self, now_ms: int) -> list[ProducerBatch]:
        """Removes the batches that have reached their delivery timeout from the queues.

        The caller fails them and calls `complete_and_deallocate`.
        """
        expired: list[ProducerBatch] = []
        with self.lock:
            self.next_expiry_ms = NEVER
            for topic_batches in self.topics.values():
                for queue in topic_batches.queues.values():
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
        """Sends no more batches to a partition until `unmute`, to keep the order of its batches."""
        with self.lock:
            self._muted.add(tp)

    def unmute(self, tp: TopicPartition) -> None:
        with self.lock:
            self._muted.discard(tp)

    # --- completion

    def complete_batch(self, batch: ProducerBatch) -> None:
        """Marks a batch as acknowledged or failed; `deallocate` returns its memory."""
        with self.lock:
            self._incomplete.pop(batch, None)

    def deallocate(self, batch: ProducerBatch) -> None:
        """Returns the memory of a batch to the pool, once.

        The block of a batch that is in flight is not reused, because a request still reads it.
        """
        with self.lock:
            size, batch.allocated = batch.allocated, 0
        if size and not batch.is_split:
            self.pool.deallocate(batch.take_block(), size)

    def complete_and_deallocate(self, batch: ProducerBatch) -> None:
        self.complete_batch(batch)
        self.deallocate(batch)

    def begin_flush(self) -> None:
        """Makes all batches ready until `end_flush`, which must be called as often."""
        with self.lock:
            self._flushes_in_progress += 1

    def end_flush(self) -> None:
        with self.lock:
            self._flushes_in_progress -= 1

    def incomplete_results(self) -> list[BatchResult]:
        """Returns the results of all incomplete batches; a flush waits for them."""
        with self.lock:
            return [batch.result for batch in self._incomplete]

    def has_incomplete(self) -> bool:
        """Whether there are batches that are neither acknowledged nor failed, sent or not."""
        return bool(self._incomplete)

    def abort_undrained(self, error: KafkaError) -> None:
        """Aborts the batches that were never sent."""
        with self.lock:
            aborted = [
                batch
                for batch in self._incomplete
                if not (batch.is_closed if self._sequences is None else batch.has_sequence)
            ]
            self._remove(aborted)
        self._abort(aborted, error)

    def abort_incomplete(self, error: KafkaError) -> None:
        """Aborts all batches, whether they were sent or not."""
        with self.lock:
            aborted = list(self._incomplete)
            self._remove(aborted)
        self._abort(aborted, error)

    def _remove(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            batch.close_for_appends()
            topic, partition = batch.topic_partition
            queue = self.topics[topic].queues.get(partition)
            if queue and batch in queue:
                queue.remove(batch)

    def _abort(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        for batch in batches:
            batch.abort(error)
            self.complete_batch(batch)
            # The memory of a batch in flight is returned when its response arrives.
            if not batch.is_in_flight:
                self.deallocate(batch)

    def close(self) -> None:
        """Rejects new records; the existing batches are ready at once."""
        with self.lock:
            self.is_closed = True
        self.pool.close()
