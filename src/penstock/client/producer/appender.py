"""Puts records into the batches of a `RecordAccumulator`, on the callers' threads."""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.client.errors import IllegalStateError
from penstock.client.producer.accumulator import RecordAccumulator, TopicBatches
from penstock.client.producer.batch import Headers, ProducerBatch
from penstock.client.producer.buffer_pool import ReservedBuffer
from penstock.client.producer.bulk import BulkAppend, BulkRecords
from penstock.client.producer.bulk_future import BulkFuture, BulkPart
from penstock.client.producer.future import DeliveryCallback, RecordFuture
from penstock.client.settings import ProducerOptions
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.records._encode import size_upper_bound
from penstock.records.compress import Compression, check_level

UNKNOWN_PARTITION: Final = -1
"""Lets the built-in partitioner choose the partition."""


class RecordToAppend(NamedTuple):
    """A serialized record, its destination, and the metadata of the cluster."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    callback: DeliveryCallback | None
    cluster: Cluster


class RecordAppender:
    """Appends records to batches and waits for memory. Thread-safe.

    `wake` is called, without the lock, when a batch was created or became full, and when a caller
    waits for memory: the sender should check which nodes are ready.
    """

    def __init__(
        self,
        settings: ProducerOptions,
        clock: Clock,
        accumulator: RecordAccumulator,
        *,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.wake = wake
        self.pool = accumulator.pool
        self._accumulator = accumulator
        self._lock = accumulator.lock
        self._topics = accumulator.topics
        self._clock = clock
        self._batch_size = accumulator.batch_size
        self._max_request_size = settings["max_request_size"]
        self._ignore_keys = settings["partitioner_ignore_keys"]
        self._compression = Compression.from_name(settings["compression_type"])
        self._level = _compression_level(settings, self._compression)
        check_level(self._compression, self._level)

    # --- single records

    def append(self, record: RecordToAppend, max_block_ms: int, now_ms: int) -> RecordFuture:
        """Appends a record to a batch. The partition of the returned future is known at once.

        With UNKNOWN_PARTITION the record goes to the sticky partition. Blocks up to `max_block_ms`
        if there is no memory for a new batch, then raises BufferExhaustedError. Raises
        IllegalStateError after `close`, RecordTooLargeError for a record larger than the pool.
        """
        future = self.try_append(*record, now_ms)
        if future is None:
            self.wake()
            size = self._block_size(record.key, record.value, record.headers)
            future = self._append_with(self.pool.allocate(size, max_block_ms), record)
        return future

    async def append_async(
        self, record: RecordToAppend, max_block_ms: int, now_ms: int
    ) -> RecordFuture:
        """Like `append`, but only the calling task waits for memory."""
        future = self.try_append(*record, now_ms)
        if future is None:
            self.wake()
            size = self._block_size(record.key, record.value, record.headers)
            future = self._append_with(await self.pool.allocate_async(size, max_block_ms), record)
        return future

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
        reserved: ReservedBuffer | None = None,
    ) -> RecordFuture | None:
        """Like `append`, but never waits: returns None if there is no memory now.

        The parameters are those of `RecordToAppend`, without the cost of the object.
        """
        with self._lock:
            topic_batches = self._topics.get(topic)
            if topic_batches is None or self._accumulator.is_closed:
                topic_batches = self._open_topic(topic)
            sticky = None
            size_before = 0
            if partition < 0:
                sticky = topic_batches.partitioner
                partition = sticky.partition
                if partition < 0 or sticky.produced >= sticky.limit:
                    partition = self._sticky_partition(topic_batches, cluster)
            queue = topic_batches.queues.get(partition)
            if queue:
                batch = queue[-1]
                filler = batch.filler
                if sticky is not None:
                    size_before = filler.estimated_size()
                future = batch.append(timestamp, key, value, headers, callback, now_ms)
                if future is not None:
                    is_full = filler.is_full()
                    if sticky is not None:
                        sticky.appended(filler.estimated_size() - size_before, cluster, is_full)
                    if not is_full:
                        return future
                else:
                    batch.close_for_appends()
            else:
                future = None
            if future is None:
                size = self._block_size(key, value, headers)
                new = self._create_batch(topic, partition, size, now_ms, reserved)
                if new is None:
                    return None
                try:
                    future = new.append(timestamp, key, value, headers, callback, now_ms)
                except BaseException:
                    self.pool.deallocate(new.take_block(), new.allocated)
                    raise
                self._accumulator.enqueue_new(topic_batches, partition, new)
                if sticky is not None:
                    sticky.appended(new.size_in_bytes, cluster, new.is_full)
        self.wake()
        return future

    def _append_with(self, buffer: bytearray, record: RecordToAppend) -> RecordFuture:
        """Appends with memory that the caller waited for; another batch may have room by now."""
        reserved = ReservedBuffer(buffer)
        try:
            future = self.try_append(*record, self._clock.monotonic_ms(), reserved)
        finally:
            reserved.release(self.pool)
        assert future is not None
        return future

    # --- many records at once

    def append_many(
        self,
        topic: str,
        partition: int,
        records: BulkRecords,
        cluster: Cluster,
        max_block_ms: int,
        now_ms: int,
    ) -> BulkFuture:
        """Appends many records, each batch in one compiled loop.

        With UNKNOWN_PARTITION the keys decide as they do for single records.

        `max_block_ms` limits each wait for memory. If one runs out after some records were
        appended, the returned future has the error; otherwise it is raised. The sizes of all
        records are checked before the first is appended.
        """
        work = self._begin_bulk(topic, partition, records, cluster)
        try:
            while size := work.run(cluster, now_ms):
                self.wake()
                work.reserved = ReservedBuffer(self.pool.allocate(size, max_block_ms))
                now_ms = self._clock.monotonic_ms()
        except KafkaError as error:
            return work.fail_rest(error)
        return work.future()

    async def append_many_async(
        self,
        topic: str,
        partition: int,
        records: BulkRecords,
        cluster: Cluster,
        max_block_ms: int,
        now_ms: int,
    ) -> BulkFuture:
        """Like `append_many`, but only the calling task waits for memory."""
        work = self._begin_bulk(topic, partition, records, cluster)
        try:
            while size := work.run(cluster, now_ms):
                self.wake()
                work.reserved = ReservedBuffer(await self.pool.allocate_async(size, max_block_ms))
                now_ms = self._clock.monotonic_ms()
        except KafkaError as error:
            return work.fail_rest(error)
        return work.future()

    def _begin_bulk(
        self, topic: str, partition: int, records: BulkRecords, cluster: Cluster
    ) -> BulkAppend:
        records.check_sizes(self._max_request_size, self.pool.total_memory)
        records.batch_size = min(records.batch_size or self._batch_size, self._max_request_size)
        work = BulkAppend(self, topic, records)
        if partition >= 0 or self._ignore_keys:
            work.assign_partition(partition)
        else:
            work.assign_by_key(cluster)
        return work

    def choose_sticky_partition(self, topic: str, size: int, cluster: Cluster) -> int:
        """Returns the partition for `size` bytes of records without keys."""
        with self._lock:
            topic_batches = self._open_topic(topic)
            partition = self._sticky_partition(topic_batches, cluster)
            topic_batches.partitioner.appended(size, cluster, True)
            return partition

    def fill_batch(
        self,
        topic: str,
        partition: int,
        records: BulkRecords,
        start: int,
        stop: int,
        cluster: Cluster,
        now_ms: int,
        reserved: ReservedBuffer,
    ) -> BulkPart | int:
        """Appends the records from position `start` on to one batch, as many as it has room for.

        Returns the number of bytes needed if there is no memory for a batch.
        """
        with self._lock:
            topic_batches = self._open_topic(topic)
            sticky = None
            if partition < 0:
                sticky = topic_batches.partitioner
                partition = self._sticky_partition(topic_batches, cluster)
            queue = topic_batches.queues.get(partition)
            batch = queue[-1] if queue else None
            number = size_before = 0
            position = start
            is_new = False
            if batch is not None:
                number = batch.records_count
                size_before = batch.size_in_bytes
                position = records.fill(batch.filler, start, stop)
            if batch is None or position == start:
                size = records.block_size(start, stop, self._batch_size, self.pool.total_memory)
                batch = self._create_batch(topic, partition, size, now_ms, reserved)
                if batch is None:
                    return size
                number = size_before = 0
                try:
                    position = records.fill(batch.filler, start, stop)
                except BaseException:
                    self.pool.deallocate(batch.take_block(), batch.allocated)
                    raise
                self._accumulator.enqueue_new(topic_batches, partition, batch)
                is_new = True
            if position < stop:
                batch.close_for_appends()
            batch.last_append_ms = now_ms
            if sticky is not None:
                sticky.appended(batch.size_in_bytes - size_before, cluster, batch.is_full)
            is_full = batch.is_full
        if is_new or is_full:
            self.wake()
        return BulkPart(batch.result, number, start, position - start)

    # --- batches; called with the lock held

    def _open_topic(self, topic: str) -> TopicBatches:
        if self._accumulator.is_closed:
            raise IllegalStateError(
                "the producer is closed", remedy="create a new one to send more records"
            )
        return self._accumulator.batches_of(topic)

    def _sticky_partition(self, topic_batches: TopicBatches, cluster: Cluster) -> int:
        """Returns the current sticky partition, after a switch that waited for a full batch."""
        sticky = topic_batches.partitioner
        partition = sticky.current(cluster)
        if sticky.produced >= sticky.limit:
            queue = topic_batches.queues.get(partition)
            if not queue or queue[-1].is_full:
                sticky.appended(0, cluster, True)
                partition = sticky.current(cluster)
        return partition

    def _block_size(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        return max(self._batch_size, size_upper_bound(key, value, headers))

    def _create_batch(
        self, topic: str, partition: int, size: int, now_ms: int, reserved: ReservedBuffer | None
    ) -> ProducerBatch | None:
        """Returns an empty batch, or None if there is no memory for it."""
        buffer = reserved.take() if reserved is not None else None
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
            estimated_ratio=self._accumulator.compression_ratios.estimate(topic),
        )


def _compression_level(settings: ProducerOptions, compression: Compression) -> int | None:
    match compression:
        case Compression.GZIP:
            return settings["compression_gzip_level"]
        case Compression.LZ4:
            return settings["compression_lz4_level"]
        case Compression.ZSTD:
            return settings["compression_zstd_level"]
    return None
