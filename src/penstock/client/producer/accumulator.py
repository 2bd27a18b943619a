"""Records on their way into batches.

Threads append here; the sender's side of the same queues is in `queues.py`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.client.errors import IllegalStateError
from penstock.client.producer.batch import Headers, ProducerBatch
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.bulk import BulkAppend, BulkRecords, Spare
from penstock.client.producer.bulk_future import BulkFuture, BulkPart
from penstock.client.producer.future import DeliveryCallback, RecordFuture
from penstock.client.producer.queues import (
    NEVER,
    BatchQueues,
    Ready,
    SequenceSource,
    TopicQueues,
)
from penstock.client.settings import ProducerOptions
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.records._encode import size_upper_bound
from penstock.records.compress import Compression, check_level

__all__ = ["NEVER", "UNKNOWN_PARTITION", "Ready", "RecordAccumulator", "SequenceSource"]

UNKNOWN_PARTITION: Final = -1
"""Any partition will do."""


class RecordAccumulator(BatchQueues):
    """The records that wait to be sent. Any thread may call anything."""

    def __init__(
        self,
        settings: ProducerOptions,
        clock: Clock,
        pool: BufferPool,
        *,
        sequences: SequenceSource | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`wake` is called, without the lock, when a batch was begun or became full, or when
        somebody waits for memory: the sender should ask what is `ready`.
        """
        super().__init__(settings, pool, sequences=sequences)
        self.wake = wake
        self._clock = clock
        self._max_request_size = settings["max_request_size"]
        self._ignore_keys = settings["partitioner_ignore_keys"]
        self._compression = Compression.from_name(settings["compression_type"])
        self._level = _level_of(settings, self._compression)
        check_level(self._compression, self._level)

    def append(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        callback: DeliveryCallback | None,
        cluster: Cluster,
        max_block_ms: int,
        now_ms: int,
    ) -> RecordFuture:
        """Put a record into a batch; its future knows the partition at once.

        With UNKNOWN_PARTITION the sticky one is taken. Where there is no memory for a batch, this
        blocks up to `max_block_ms` (`BufferExhaustedError`). `IllegalStateError` when closed,
        `RecordTooLargeError` for more than the pool has.
        """
        future = self.try_append(
            topic, partition, timestamp, key, value, headers, callback, cluster, now_ms
        )
        if future is not None:
            return future
        self.wake()
        spare = Spare(self.pool.allocate(self._size_for(key, value, headers), max_block_ms))
        return self._append_with(
            spare, topic, partition, timestamp, key, value, headers, callback, cluster
        )

    async def append_async(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        callback: DeliveryCallback | None,
        cluster: Cluster,
        max_block_ms: int,
        now_ms: int,
    ) -> RecordFuture:
        """`append`, but only the task waits for memory."""
        future = self.try_append(
            topic, partition, timestamp, key, value, headers, callback, cluster, now_ms
        )
        if future is not None:
            return future
        self.wake()
        size = self._size_for(key, value, headers)
        spare = Spare(await self.pool.allocate_async(size, max_block_ms))
        return self._append_with(
            spare, topic, partition, timestamp, key, value, headers, callback, cluster
        )

    def try_append(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        callback: DeliveryCallback | None,
        cluster: Cluster,
        now_ms: int,
        spare: Spare | None = None,
    ) -> RecordFuture | None:
        """`append` without waiting: None where there is no memory now."""
        with self._lock:
            topic_queues = self._topics.get(topic)
            if topic_queues is None or self._closed:
                topic_queues = self._open_topic(topic)
            sticky = None
            before = 0
            if partition < 0:
                sticky = topic_queues.partitioner
                partition = sticky.partition
                if partition < 0 or sticky.produced >= sticky.limit:
                    partition = self._sticky_partition(topic_queues, cluster)
            queue = topic_queues.queues.get(partition)
            if queue:
                batch = queue[-1]
                filler = batch.filler
                if sticky is not None:
                    before = filler.estimated_size()
                future = batch.append(timestamp, key, value, headers, callback, now_ms)
                if future is not None:
                    is_full = filler.is_full()
                    if sticky is not None:
                        sticky.appended(filler.estimated_size() - before, cluster, is_full)
                    if not is_full:
                        return future
                else:
                    batch.close_for_appends()
            else:
                future = None
            if future is None:
                size = self._size_for(key, value, headers)
                new = self._begin_batch(topic, partition, size, now_ms, spare)
                if new is None:
                    return None
                try:
                    future = new.append(timestamp, key, value, headers, callback, now_ms)
                except BaseException:
                    self.pool.deallocate(new.take_block(), new.allocated)
                    raise
                self._enqueue_new(topic_queues, partition, new)
                if sticky is not None:
                    sticky.appended(new.size_in_bytes, cluster, new.is_full)
        self.wake()
        return future

    def append_many(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamps: Sequence[int] | None,
        timestamp: int,
        cluster: Cluster,
        max_block_ms: int,
        now_ms: int,
        *,
        headers: Headers = (),
        batch_size: int | None = None,
    ) -> BulkFuture:
        """`append` for many records at once, in one loop for each batch.

        With UNKNOWN_PARTITION keys decide as they do for single records. `timestamp` is for all
        where there are no `timestamps`; all have the same `headers`. A `batch_size` above the
        setting makes larger batches of what does not fit into those that are there; they come out
        of the pool's memory, but are no blocks of it.

        `max_block_ms` bounds each wait for memory. If it runs out after some records are on their
        way, the future of the call has the error; before that, it is raised. Types and sizes of
        all records are checked before the first is appended.
        """
        work = self._bulk(
            topic, partition, values, keys, timestamps, timestamp, headers, cluster, batch_size
        )
        try:
            while size := work.run(cluster, now_ms):
                self.wake()
                work.spare = Spare(self.pool.allocate(size, max_block_ms))
                now_ms = self._clock.monotonic_ms()
        except KafkaError as error:
            return work.failed(error)
        return work.future()

    async def append_many_async(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamps: Sequence[int] | None,
        timestamp: int,
        cluster: Cluster,
        max_block_ms: int,
        now_ms: int,
        *,
        headers: Headers = (),
        batch_size: int | None = None,
    ) -> BulkFuture:
        """`append_many`, but only the task waits for memory."""
        work = self._bulk(
            topic, partition, values, keys, timestamps, timestamp, headers, cluster, batch_size
        )
        try:
            while size := work.run(cluster, now_ms):
                self.wake()
                work.spare = Spare(await self.pool.allocate_async(size, max_block_ms))
                now_ms = self._clock.monotonic_ms()
        except KafkaError as error:
            return work.failed(error)
        return work.future()

    def sticky_partition(self, topic: str, size: int, cluster: Cluster) -> int:
        """Where so many bytes of records without a key go now."""
        with self._lock:
            topic_queues = self._open_topic(topic)
            partition = self._sticky_partition(topic_queues, cluster)
            topic_queues.partitioner.appended(size, cluster, True)
            return partition

    def fill(
        self,
        topic: str,
        partition: int,
        records: BulkRecords,
        start: int,
        stop: int,
        cluster: Cluster,
        now_ms: int,
        spare: Spare,
    ) -> BulkPart | int:
        """Append records from position `start` on, as far as one batch has room.

        The bytes of memory that it takes, where there is none.
        """
        with self._lock:
            topic_queues = self._open_topic(topic)
            sticky = None
            if partition < 0:
                sticky = topic_queues.partitioner
                partition = self._sticky_partition(topic_queues, cluster)
            queue = topic_queues.queues.get(partition)
            batch = queue[-1] if queue else None
            number = before = 0
            position = start
            is_new = False
            if batch is not None:
                number = batch.records_count
                before = batch.size_in_bytes
                position = records.fill(batch.filler, start, stop)
            if batch is None or position == start:
                size = records.room_for(start, stop, self._batch_size, self.pool.total_memory)
                batch = self._begin_batch(topic, partition, size, now_ms, spare)
                if batch is None:
                    return size
                number = before = 0
                try:
                    position = records.fill(batch.filler, start, stop)
                except BaseException:
                    self.pool.deallocate(batch.take_block(), batch.allocated)
                    raise
                self._enqueue_new(topic_queues, partition, batch)
                is_new = True
            if position < stop:
                batch.close_for_appends()
            batch.last_append_ms = now_ms
            if sticky is not None:
                sticky.appended(batch.size_in_bytes - before, cluster, batch.is_full)
            is_full = batch.is_full
        if is_new or is_full:
            self.wake()
        return BulkPart(batch.result, number, start, position - start)

    def _bulk(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamps: Sequence[int] | None,
        timestamp: int,
        headers: Headers,
        cluster: Cluster,
        batch_size: int | None,
    ) -> BulkAppend:
        records = BulkRecords(values, keys, timestamps, timestamp, headers)
        records.check_sizes(self._max_request_size, self.pool.total_memory)
        records.batch_size = min(batch_size or self._batch_size, self._max_request_size)
        work = BulkAppend(self, topic, records)
        if partition >= 0 or self._ignore_keys:
            work.whole(partition)
        else:
            work.by_key(cluster)
        return work

    def _append_with(
        self,
        spare: Spare,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        callback: DeliveryCallback | None,
        cluster: Cluster,
    ) -> RecordFuture:
        """Append with memory that was waited for. Meanwhile another batch may have found room."""
        now_ms = self._clock.monotonic_ms()
        try:
            future = self.try_append(
                topic, partition, timestamp, key, value, headers, callback, cluster, now_ms, spare
            )
        finally:
            spare.give_back(self.pool)
        assert future is not None
        return future

    def _open_topic(self, topic: str) -> TopicQueues:
        if self._closed:
            raise IllegalStateError("the producer is closed: make a new one to send more records")
        return self._topic_queues(topic)

    def _sticky_partition(self, topic_queues: TopicQueues, cluster: Cluster) -> int:
        """The partition whose turn it is; a switch that waited for a full batch is made now."""
        sticky = topic_queues.partitioner
        partition = sticky.current(cluster)
        if sticky.produced >= sticky.limit:
            queue = topic_queues.queues.get(partition)
            if not queue or queue[-1].is_full:
                sticky.appended(0, cluster, True)
                partition = sticky.current(cluster)
        return partition

    def _size_for(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        return max(self._batch_size, size_upper_bound(key, value, headers))

    def _begin_batch(
        self, topic: str, partition: int, size: int, now_ms: int, spare: Spare | None
    ) -> ProducerBatch | None:
        """An empty batch, or None where there is no memory for it."""
        buffer = spare.take() if spare is not None else None
        if buffer is None:
            buffer = self.pool.try_allocate(size)
            if buffer is None:
                return None
        return ProducerBatch(
            TopicPartition(topic, partition),
            buffer,
            now_ms,
            compression=self._compression,
            level=self._level,
            estimated_ratio=self._ratios.estimate(topic),
        )

    def _enqueue_new(self, topic_queues: TopicQueues, partition: int, batch: ProducerBatch) -> None:
        topic_queues.queues.setdefault(partition, deque()).append(batch)
        self._incomplete[batch] = None
        self._note_expiry(batch)


def _level_of(settings: ProducerOptions, compression: Compression) -> int | None:
    if compression is Compression.GZIP:
        return settings["compression_gzip_level"]
    if compression is Compression.LZ4:
        return settings["compression_lz4_level"]
    if compression is Compression.ZSTD:
        return settings["compression_zstd_level"]
    return None
