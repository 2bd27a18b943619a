"""The producer on the user's own event loop."""

import asyncio
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Self, Unpack

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.errors import ClientError, IllegalStateError, KafkaTimeoutError
from penstock.client.metrics import MetricName
from penstock.client.producer.accumulator import UNKNOWN_PARTITION
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


class Producer:
    """Sends records to topics, on the event loop that `start` is called on.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            future = await producer.send("orders", b"value")  # it is in a batch
            metadata = await future  # it is acknowledged

    The settings and what they mean are those of `penstock.client.Producer`.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        self._core = ProducerCore(producer_settings(options), SystemClock())
        self._is_transactional = self._core.settings["transactional_id"] is not None
        self._is_started = False
        self._is_plain = False

    async def start(self) -> None:
        """Begin; `async with` does it."""
        self._core.check_open()
        if not self._is_started:
            self._is_started = True
            await self._core.start(is_threaded=False)
            self._is_plain = self._core.is_plain

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
        """Put a record into a batch; waits for metadata and memory, up to `max_block_ms`.

        Await the future that comes back for the record's offset. Arguments and errors are those of
        the blocking producer's `send`.
        """
        core = self._core
        if self._is_plain and not headers:
            future = self._send_plain(topic, value, key, partition, timestamp, on_delivery)
            if future is not None:
                if core.driver.is_woken:
                    # Whoever sends in a loop without waiting for anything would send nothing.
                    await asyncio.sleep(0)
                return future
        self._check_running()
        record = core.intercepted(topic, value, key, as_headers(headers), partition, timestamp)
        try:
            return await self._send_record(record, on_delivery)
        except ClientError as error:
            core.send_failed(record, error)
            if self._is_transactional:
                core.spoil_transaction(error)
            raise

    def _send_plain(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> RecordFuture | None:
        """The short way for bytes. None where there is something to wait for, or to complain of."""
        core = self._core
        manager = core.manager
        if core.is_closed or (manager is not None and not manager.sendable):
            return None
        if value.__class__ is not bytes:
            value = check_bytes(value, "value")
        if key is not None and key.__class__ is not bytes:
            key = check_bytes(key, "key")
        cluster = core.network.metadata.cluster
        known = cluster.topics.get(topic)
        if (
            known is None
            or not known.partitions
            or len(value or b"") + len(key or b"") > core.safe_size
        ):
            return None
        if partition is None:
            if key is None:
                partition = UNKNOWN_PARTITION
            else:
                partition = partition_for_key(key, len(known.partitions))
        elif not 0 <= partition < len(known.partitions):
            return None
        future = core.accumulator.try_append(
            topic,
            partition,
            time.time_ns() // 1_000_000 if timestamp is None else timestamp,
            key,
            value,
            (),
            on_delivery,
            cluster,
            time.monotonic_ns() // 1_000_000,
        )
        if future is not None and self._is_transactional:
            core.add_partition(future.topic_partition)
        return future

    async def _send_record(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> RecordFuture:
        core = self._core
        if core.manager is not None:
            core.manager.check_send()
        started_ms = core.clock.monotonic_ms()
        cluster = await self._cluster_with(record.topic, record.partition)
        key, value = core.serialized(record)
        partition = core.partition_of(record, key, value, cluster)
        core.check_size(key, value, record.headers)
        now_ms = core.clock.monotonic_ms()
        future = await core.accumulator.append_async(
            record.topic,
            partition,
            core.clock.now_ms() if record.timestamp is None else record.timestamp,
            key,
            value,
            record.headers,
            core.acknowledging(record, on_delivery),
            cluster,
            max(0, core.max_block_ms - (now_ms - started_ms)),
            now_ms,
        )
        if self._is_transactional:
            core.add_partition(future.topic_partition)
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
        """Put many records into batches at once; see the blocking producer's `send_many`."""
        core = self._core
        self._check_running()
        if core.manager is not None:
            core.manager.check_send()
        started_ms = core.clock.monotonic_ms()
        cluster = await self._cluster_with(topic, partition)
        now_ms = core.clock.monotonic_ms()
        future = await core.accumulator.append_many_async(
            topic,
            UNKNOWN_PARTITION if partition is None else partition,
            values,
            keys,
            timestamps,
            core.clock.now_ms(),
            cluster,
            max(0, core.max_block_ms - (now_ms - started_ms)),
            now_ms,
            headers=as_headers(headers),
            batch_size=core.bulk_batch_size,
        )
        if self._is_transactional:
            for each in future.topic_partitions:
                core.add_partition(each)
        return future

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until it is acknowledged, or has failed."""
        core = self._core
        if not self._is_started:
            return
        started = time.monotonic_ns()
        core.accumulator.begin_flush()
        try:
            core.driver.wake()
            async with asyncio.timeout(timeout):
                for result in core.accumulator.incomplete_results():
                    done = asyncio.Event()
                    result.add_done_callback(done.set)
                    await done.wait()
        except TimeoutError:
            raise KafkaTimeoutError(
                f"not everything was delivered within {timeout} s; it is still on its way"
            ) from None
        finally:
            core.accumulator.end_flush()
            core.sensors.took("flush", time.monotonic_ns() - started)

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic; waits for them up to `max_block_ms`."""
        self._check_running()
        return (await self._cluster_with(topic, None)).topics[topic].partitions

    def metrics(self) -> dict[MetricName, float]:
        """All metrics now, under Kafka's names."""
        return self._core.snapshot()

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Once, before anything else."""
        self._check_running()
        await self._core.init_transactions(self._ms(timeout))

    async def begin_transaction(self) -> None:
        self._check_running()
        await self._core.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group with the transaction: the next to read of each partition."""
        self._check_running()
        await self._core.send_offsets_to_transaction(offsets, group_metadata, self._ms(timeout))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        self._check_running()
        await self._core.commit_transaction(self._ms(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        self._check_running()
        await self._core.abort_transaction(self._ms(timeout))

    async def close(self, timeout: float | None = None) -> None:
        """Deliver what is pending, for at most `timeout` seconds, then fail the rest."""
        timeout_ms = seconds_to_ms(timeout)
        if self._core.is_closed:
            return
        self._core.is_closed = True
        if self._is_started:
            await self._core.close(timeout_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_started", False) and not self._core.is_closed:
            warnings.warn(
                f"a producer ({self._core.settings['client_id']}) was not closed: use `async "
                "with`, or await close(); what it had may not be delivered",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _check_running(self) -> None:
        self._core.check_open()
        if not self._is_started:
            raise IllegalStateError("the producer is not started: use `async with`, or start()")

    async def _cluster_with(self, topic: str, partition: int | None) -> Cluster:
        cluster = self._core.known_cluster(topic, partition)
        if cluster is None or (partition is not None and partition < 0):
            cluster = await self._core.wait_for_topic(topic, partition)
        return cluster

    def _ms(self, timeout: float | None) -> int:
        given = seconds_to_ms(timeout)
        return self._core.max_block_ms if given is None else given
