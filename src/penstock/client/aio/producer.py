"""The asyncio producer, on the caller's event loop.

`penstock.client.producer.producer`, the blocking producer, is generated from this file by
`tools/unasync.py`.
"""

import asyncio
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from penstock.client.aio.caller_loop import CallerLoop, wait_for_batch
from penstock.client.errors import ClientError, IllegalStateError, KafkaTimeoutError
from penstock.client.metrics import MetricName
from penstock.client.producer.appender import UNKNOWN_PARTITION, RecordToAppend
from penstock.client.producer.bulk import BulkRecords
from penstock.client.producer.bulk_future import BulkFuture
from penstock.client.producer.core import ProducerCore, as_headers, seconds_to_ms
from penstock.client.producer.future import DeliveryCallback, RecordFuture
from penstock.client.producer.interceptors import Headers, ProducerRecord
from penstock.client.producer.options import producer_settings
from penstock.client.producer.partitioners import partition_for_key
from penstock.client.producer.serializers import check_bytes
from penstock.client.settings import ProducerOptions
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.client.cluster import Cluster, PartitionInfo

P = ParamSpec("P")
R = TypeVar("R")


def _call_of_core(
    call: Callable[Concatenate[ProducerCore, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Producer", P], Coroutine[Any, Any, R]]:
    """Returns a method of the producer that runs a call of its core on the loop."""

    @wraps(call)
    async def run(self: "Producer", /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_running()
        return await self._caller_loop.run(call(self._core, *args, **kwargs))

    return run


class Producer:
    """Sends records to topics, on the event loop that it is started on.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            future = await producer.send("orders", b"value")  # the record is in a batch
            metadata = await future  # the record is acknowledged

    `send` returns once the record is in a batch; batches are sent in the background. Close the
    producer with `async with` or `close()`; one that is garbage collected open causes a
    ResourceWarning.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        settings = producer_settings(options)
        self._core = core = ProducerCore(settings, SystemClock())
        # Attributes of other objects that `send` needs for every record.
        self._try_append = core.appender.try_append
        self._manager = core.manager
        self._is_transactional = settings["transactional_id"] is not None
        self._has_fast_path = False
        self._safe_size = core.safe_size
        self._caller_loop = CallerLoop()
        self._caller_loop.open(partial(core.start, is_threaded=self._caller_loop.is_threaded))
        # blocking only: self._enable_fast_path()
        # blocking only: deliver_at_exit(self, core)

    async def start(self) -> None:  # asyncio only
        """Starts the producer; `async with` does so too."""
        self._core.check_open()
        if not self._caller_loop.is_running:
            await self._caller_loop.ensure_started()
            self._enable_fast_path()

    def _enable_fast_path(self) -> None:
        self._metadata = self._core.network.metadata
        self._has_fast_path = self._core.is_plain

    # --- records

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        headers: Mapping[str, bytes | None] | Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Puts a record into a batch, and returns a future for its partition and offset.

        Key and value are bytes or None, unless there is a serializer. Without `partition` the key
        decides; without a key, records go to one partition until a batch is full. `timestamp` is in
        milliseconds, by default the current time. `on_delivery(metadata, error)` is called when the
        record is acknowledged or has failed.

        Waits up to `max_block_ms` for the topic's metadata and for memory. A record that cannot be
        sent at all raises here: RecordTooLargeError (E2), UnknownTopicError (E5),
        AuthorizationError (E3), BufferExhaustedError, SerializationError, IllegalStateError.
        Later failures are raised by the future.
        """
        manager = self._manager
        if not self._has_fast_path or headers or (manager is not None and not manager.can_send):
            return await self._send_slowly(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
        if value.__class__ is not bytes:
            value = check_bytes(value, "value")
        if key is not None and key.__class__ is not bytes:
            key = check_bytes(key, "key")
        cluster = self._metadata.cluster
        topic_info = cluster.topics.get(topic)
        if (
            topic_info is None
            or not topic_info.partitions
            or (len(value or b"") + len(key or b"")) > self._safe_size
        ):
            return await self._send_slowly(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
        number = partition
        if number is None:
            if key is None:
                number = UNKNOWN_PARTITION
            else:
                number = partition_for_key(key, len(topic_info.partitions))
        elif not 0 <= number < len(topic_info.partitions):
            return await self._send_slowly(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
        future = self._try_append(
            topic,
            number,
            time.time_ns() // 1_000_000 if timestamp is None else timestamp,
            key,
            value,
            (),
            on_delivery,
            cluster,
            time.monotonic_ns() // 1_000_000,
        )
        if future is None:
            return await self._send_slowly(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
        if (
            self._is_transactional
            and manager is not None
            and not manager.has_partition(future.topic_partition)
        ):
            await self._add_partition(future.topic_partition)
        if self._core.driver.is_woken:  # asyncio only
            # A caller that sends in a loop, and awaits nothing else, must let the driver run.
            await asyncio.sleep(0)
        return future

    async def _send_slowly(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Mapping[str, bytes | None] | Headers | None,
        partition: int | None,
        timestamp: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> RecordFuture:
        """Sends a record that must wait, or needs interceptors, serializers or a partitioner."""
        core = self._core
        self._check_running()
        record = core.intercept(topic, value, key, as_headers(headers), partition, timestamp)
        try:
            return await self._send_record(record, on_delivery)
        except ClientError as error:
            core.report_send_error(record, error)
            if self._is_transactional:
                await self._caller_loop.call(core.fail_transaction, error)
            raise

    async def _send_record(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> RecordFuture:
        core = self._core
        if self._manager is not None:
            self._manager.check_send()
        started_ms = core.clock.monotonic_ms()
        cluster = await self._cluster_with(record.topic, record.partition)
        key, value = core.serialize(record)
        partition = core.partition_of(record, key, value, cluster)
        core.check_size(key, value, record.headers)
        now_ms = core.clock.monotonic_ms()
        record_to_append = RecordToAppend(
            record.topic,
            partition,
            core.clock.now_ms() if record.timestamp is None else record.timestamp,
            key,
            value,
            record.headers,
            core.delivery_callback(record, on_delivery),
            cluster,
        )
        max_block_ms = max(0, core.max_block_ms - (now_ms - started_ms))
        future = await core.appender.append_async(record_to_append, max_block_ms, now_ms)
        if self._is_transactional:
            await self._add_partition(future.topic_partition)
        return future

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        headers: Mapping[str, bytes | None] | Headers | None = None,
        timestamps: Sequence[int] | None = None,
    ) -> BulkFuture:
        """Puts many records into batches, and returns one future for all, in their order.

        It is several times as fast as `send`. Values and keys must be bytes; serializers,
        partitioners and interceptors are not called. All records get the same `headers`.
        """
        core = self._core
        self._check_running()
        if self._manager is not None and not self._manager.can_send:
            self._manager.check_send()
        started_ms = core.clock.monotonic_ms()
        cluster = await self._cluster_with(topic, partition)
        now_ms = core.clock.monotonic_ms()
        records = BulkRecords(
            values,
            keys,
            timestamps,
            core.clock.now_ms(),
            as_headers(headers),
            core.bulk_batch_size,
        )
        future = await core.appender.append_many_async(
            topic,
            UNKNOWN_PARTITION if partition is None else partition,
            records,
            cluster,
            max(0, core.max_block_ms - (now_ms - started_ms)),
            now_ms,
        )
        if self._is_transactional:
            for topic_partition in future.topic_partitions:
                await self._add_partition(topic_partition)
        return future

    async def flush(self, timeout: float | None = None) -> None:
        """Sends all batches now and waits until they are acknowledged, or have failed.

        Raises KafkaTimeoutError after `timeout` seconds; undelivered records are still being sent.
        """
        core = self._core
        if not self._caller_loop.is_running:
            return
        # blocking only: self._caller_loop.refuse_current()
        started = time.monotonic_ns()
        deadline = None if timeout is None else time.monotonic() + timeout
        core.accumulator.begin_flush()
        try:
            core.driver.wake()
            for result in core.accumulator.incomplete_results():
                remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not await wait_for_batch(result, remaining_s):
                    raise KafkaTimeoutError(
                        f"not all records were delivered within {timeout} s; they are still being "
                        "sent"
                    )
        finally:
            core.accumulator.end_flush()
            core.sensors.record_time("flush", time.monotonic_ns() - started)

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Returns the partitions of a topic; waits for its metadata up to `max_block_ms`."""
        self._check_running()
        return (await self._cluster_with(topic, None)).topics[topic].partitions

    def metrics(self) -> dict[MetricName, float]:
        """Returns the current value of every metric, under Kafka's names."""
        return self._core.snapshot()

    # --- transactions

    init_transactions = _call_of_core(ProducerCore.init_transactions)
    begin_transaction = _call_of_core(ProducerCore.begin_transaction)
    send_offsets_to_transaction = _call_of_core(ProducerCore.send_offsets_to_transaction)
    commit_transaction = _call_of_core(ProducerCore.commit_transaction)
    abort_transaction = _call_of_core(ProducerCore.abort_transaction)

    # --- close

    async def close(self, timeout: float | None = None) -> None:
        """Delivers pending records for at most `timeout` seconds, then fails the others.

        May be called twice.
        """
        timeout_ms = seconds_to_ms(timeout)
        if self._core.is_closed:
            return
        self._core.is_closed = True
        self._has_fast_path = False
        await self._caller_loop.finish(self._core.close, timeout_ms)

    async def __aenter__(self) -> Self:
        await self.start()  # asyncio only
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def __del__(self) -> None:
        caller_loop = getattr(self, "_caller_loop", None)
        if caller_loop is None or not caller_loop.is_running or self._core.is_closed:
            return
        warnings.warn(
            f"a producer ({self._core.settings['client_id']}) was not closed; use `async with` or "
            "await close(); its pending records may not be delivered",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        # blocking only: self._core.is_closed = True
        # blocking only: caller_loop.abandon(self._core.close)

    # --- helpers

    def _check_running(self) -> None:
        self._core.check_open()
        if not self._caller_loop.is_running:  # asyncio only
            raise IllegalStateError(
                "the producer is not started", remedy="use `async with` or start()"
            )

    async def _cluster_with(self, topic: str, partition: int | None) -> Cluster:
        cluster = self._core.cached_cluster(topic, partition)
        if cluster is None or (partition is not None and partition < 0):
            cluster = await self._caller_loop.run(self._core.wait_for_topic(topic, partition))
        return cluster

    async def _add_partition(self, partition: TopicPartition) -> None:
        assert self._manager is not None
        if not self._manager.has_partition(partition):
            await self._caller_loop.call(self._core.add_partition, partition)
