"""The parts that the blocking and the asyncio producer share: everything but the waiting."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.errors import (
    ClientError,
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicError,
)
from penstock.client.metrics import MetricName, Metrics
from penstock.client.network import create_network_client
from penstock.client.network_metrics import NetworkMetrics
from penstock.client.producer.accumulator import RecordAccumulator
from penstock.client.producer.appender import UNKNOWN_PARTITION, RecordAppender
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.driver import ProducerDriver
from penstock.client.producer.future import DeliveryCallback, RecordMetadata
from penstock.client.producer.interceptors import (
    Headers,
    ProducerInterceptors,
    ProducerRecord,
)
from penstock.client.producer.partitioners import partition_for_key, partitioner_of
from penstock.client.producer.sender import Sender
from penstock.client.producer.sender_metrics import GROUP, SenderMetrics
from penstock.client.producer.serializers import Serializer, check_bytes, serializer_of
from penstock.client.producer.transaction_manager import TransactionManager
from penstock.client.producer.transaction_request import TxnResult
from penstock.client.settings import ProducerOptions
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster

RECORD_OVERHEAD: Final = 61 + 21
"""The size of a batch header, and the largest size of a record's fields."""

_BULK_BATCH_SIZE: Final = 128 * 1024
"""The batch size of `send_many`, if larger than `batch_size`: it saves requests."""


class ProducerCore:
    """The parts of a producer, wired together, and its calls. `start` is called on its loop.

    Methods that are coroutines, and those that say so, must run on the loop.
    """

    def __init__(self, settings: ProducerOptions, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.metrics = Metrics(
            clock,
            settings["metrics_num_samples"],
            settings["metrics_sample_window_ms"],
            {"client-id": settings["client_id"]},
        )
        self.sensors = SenderMetrics(self.metrics)
        self.manager: TransactionManager | None = None
        if settings["enable_idempotence"]:
            self.manager = TransactionManager(
                settings["transactional_id"],
                transaction_timeout_ms=settings["transaction_timeout_ms"],
                retry_backoff_ms=settings["retry_backoff_ms"],
            )
        self.pool = BufferPool(settings["buffer_memory"], settings["batch_size"], self.metrics)
        self.accumulator = RecordAccumulator(
            settings, self.pool, sequences=self.manager.sequencer if self.manager else None
        )
        self.appender = RecordAppender(settings, clock, self.accumulator)
        self.interceptors = ProducerInterceptors(settings["interceptors"])
        self.key_serializer = serializer_of(settings["key_serializer"], "key")
        self.value_serializer = serializer_of(settings["value_serializer"], "value")
        self.partitioner = partitioner_of(settings["partitioner"])
        self.ignores_keys = settings["partitioner_ignore_keys"]
        self.max_block_ms = settings["max_block_ms"]
        self.is_plain = not (
            self.interceptors
            or self.key_serializer
            or self.value_serializer
            or self.partitioner
            or self.ignores_keys
        )
        """Whether no interceptor, serializer or partitioner is needed, so that `send` may use its
        fast path."""
        self.is_closed = False
        limit = min(settings["max_request_size"], settings["buffer_memory"])
        self.safe_size = limit - RECORD_OVERHEAD
        """The largest key and value together, in bytes, that need no `check_size`."""
        self.bulk_batch_size = max(
            settings["batch_size"], min(_BULK_BATCH_SIZE, settings["max_request_size"] // 2)
        )

    async def start(self, *, is_threaded: bool) -> None:
        self.network = create_network_client(
            self.settings,
            clock=self.clock,
            metrics=NetworkMetrics(self.metrics, GROUP),
            auto_create_topics=True,
            metadata_max_idle_ms=self.settings["metadata_max_idle_ms"],
        )
        sender = Sender(
            self.settings, self.accumulator, self.network.metadata, self.manager, self.sensors
        )
        self.driver = ProducerDriver(self.settings, self.network, sender, is_threaded=is_threaded)
        self.sensors.gauge(
            "requests-in-flight",
            "Requests without a response yet",
            lambda: float(sum(map(self.network.in_flight, self.network.metadata.cluster.nodes))),
        )
        self.sensors.gauge("metadata-age", "Seconds since the last update", self._metadata_age)
        self.appender.wake = self.driver.wake
        await self.network.start()
        self.driver.wake()

    def check_open(self) -> None:
        if self.is_closed:
            raise IllegalStateError("the producer is closed", remedy="create a new one")

    # --- records

    def intercept(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> ProducerRecord:
        record = ProducerRecord(topic, value, key, headers, partition, timestamp)
        return self.interceptors.on_send(record)

    def delivery_callback(
        self, record: ProducerRecord, callback: DeliveryCallback | None
    ) -> DeliveryCallback | None:
        """Returns a callback that calls the interceptors and the user's callback."""
        if not self.interceptors:
            return callback
        interceptors, headers = self.interceptors, record.headers

        def on_delivery(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            interceptors.on_acknowledgement(metadata, error, headers)
            if callback is not None:
                callback(metadata, error)

        return on_delivery

    def serialize(self, record: ProducerRecord) -> tuple[bytes | None, bytes | None]:
        """Returns the bytes of key and value."""
        return (
            _serialize(self.key_serializer, record.topic, record.key, "key"),
            _serialize(self.value_serializer, record.topic, record.value, "value"),
        )

    def partition_of(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, cluster: Cluster
    ) -> int:
        if record.partition is not None:
            return record.partition
        if self.partitioner is not None:
            partition = self.partitioner.partition(
                record.topic, record.key, key, record.value, value, cluster
            )
            count = cluster.partition_count(record.topic) or 0
            if not 0 <= partition < count:
                raise ConfigError(
                    f"the partitioner chose partition {partition} of topic {record.topic}, which "
                    f"has {count}: it must choose one of 0 to {count - 1}"
                )
            return partition
        if key is not None and not self.ignores_keys:
            return partition_for_key(key, cluster.partition_count(record.topic) or 1)
        return UNKNOWN_PARTITION

    def check_size(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Raises RecordTooLargeError for a record larger than the limits of this producer (E2)."""
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += len(name.encode()) + len(content or b"") + 10
        limits = {
            "max_request_size": self.settings["max_request_size"],
            "buffer_memory": self.settings["buffer_memory"],
        }
        for name, limit in limits.items():
            if size > limit:
                raise RecordTooLargeError(
                    f"a record of {size} bytes is larger than `{name}`={limit}",
                    remedy=f"raise `{name}` (and max.message.bytes of the topic), or send less at "
                    "a time",
                )

    def report_send_error(
        self, record: ProducerRecord | None, error: ClientError, partition: int | None = None
    ) -> None:
        """Reports an error that `send` raises to metrics and interceptors."""
        if record is not None:
            self.sensors.records_failed(record.topic, 1)
            if self.interceptors:
                number = partition if partition is not None else record.partition
                self.interceptors.on_send_error(
                    record,
                    None if number is None else TopicPartition(record.topic, number),
                    error,
                )

    # --- metadata

    def cached_cluster(self, topic: str, partition: int | None) -> Cluster | None:
        """Returns the metadata if it has this topic and partition, otherwise None."""
        cluster = self.network.metadata.cluster
        count = cluster.partition_count(topic)
        if count is None or (partition is not None and partition >= count):
            return None
        return cluster

    async def wait_for_topic(self, topic: str, partition: int | None = None) -> Cluster:
        """Waits for metadata with this topic and partition, up to max_block_ms.

        Then raises UnknownTopicError (E5), or the reason why no broker responds.
        """
        if not topic:
            raise ConfigError("a topic must have a name")
        if partition is not None and partition < 0:
            raise ConfigError(f"partition={partition}: partitions are numbered from 0")
        started = time.monotonic_ns()
        network = self.network
        deadline_ms = self.clock.monotonic_ms() + self.max_block_ms
        try:
            cluster = await network.wait_for_topics([topic], deadline_ms)
            attempts = 0
            while partition is not None and partition >= (cluster.partition_count(topic) or 0):
                missing = UnknownTopicError(
                    f"topic {topic} has {cluster.partition_count(topic)} partitions and did not "
                    f"get a partition {partition} within `max_block_ms`={self.max_block_ms}"
                )
                await network.wait_before_retry(missing, attempts, deadline_ms)
                attempts += 1
                try:
                    cluster = await network.within(deadline_ms, network.update_metadata)
                except KafkaTimeoutError:
                    raise missing from None
            return cluster
        finally:
            self.sensors.record_time("metadata-wait", time.monotonic_ns() - started)

    # --- transactions

    def transactional(self) -> TransactionManager:
        self.check_open()
        if self.manager is None:
            raise IllegalStateError("transactions need a producer with a `transactional_id`")
        self.manager.ensure_transactional()
        return self.manager

    def add_partition(self, partition: TopicPartition) -> None:
        """Adds the partition of an appended record to the transaction. Call it on the loop."""
        assert self.manager is not None
        if not self.manager.has_partition(partition):
            self.manager.add_partition(partition)
            self.driver.wake()

    def fail_transaction(self, error: KafkaError) -> None:
        """Makes the transaction abortable after a record could not be sent. Call it on the loop."""
        assert self.manager is not None
        if self.manager.can_send:
            self.manager.handle_record_failure(error)

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Fences older producers with this `transactional_id` and ends their transactions.

        Call it once, before any other call. The timeout, here and below, is `max_block_ms` by
        default.
        """
        manager = self.transactional()
        await self._call("txn-init", manager.initialize, timeout)
        manager.set_transaction_version(self.driver.transaction_version(), initially=True)

    async def begin_transaction(self) -> None:
        """Starts a transaction: the records that are sent until its end belong to it."""
        started = time.monotonic_ns()
        self.transactional().begin()
        self.sensors.record_time("txn-begin", time.monotonic_ns() - started)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commits a group's offsets with the transaction: the next to read of each partition.

        Pass `consumer.group_metadata()`; the id of the group alone does not fence other members.
        """
        manager = self.transactional()
        group = group_metadata
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        if group.generation_id > 0 and not group.member_id:
            raise IllegalStateError(
                f"{group} has a generation but no member id", remedy="use consumer.group_metadata()"
            )
        positions = {
            TopicPartition(*partition): (
                OffsetAndMetadata(position) if isinstance(position, int) else position
            )
            for partition, position in offsets.items()
        }
        if positions:
            await self._call(
                "txn-send-offsets", lambda: manager.send_offsets(positions, group), timeout
            )

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Delivers all records of the transaction and commits it.

        After an error, call `abort_transaction`, unless the producer is fenced or has failed
        permanently. After KafkaTimeoutError, repeat this call.
        """
        begin = self.transactional().begin_commit
        await self._call("txn-commit", lambda: begin(self.driver.transaction_version()), timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Aborts the transaction: its records are invisible to `read_committed` consumers."""
        begin = self.transactional().begin_abort
        await self._call("txn-abort", lambda: begin(self.driver.transaction_version()), timeout)

    async def _call(self, name: str, begin: Callable[[], TxnResult], timeout: float | None) -> None:
        timeout_ms = seconds_to_ms(timeout)
        if timeout_ms is None:
            timeout_ms = self.max_block_ms
        started = time.monotonic_ns()
        try:
            await self.driver.await_result(begin(), timeout_ms)
        finally:
            self.sensors.record_time(name, time.monotonic_ns() - started)

    # --- closing

    async def close(self, timeout_ms: int | None) -> None:
        self.is_closed = True
        await self.driver.close(timeout_ms)
        self.pool.close()
        self.interceptors.close()
        for plugin in (self.partitioner, self.key_serializer, self.value_serializer):
            close = getattr(plugin, "close", None)
            if close is not None:
                close()

    def snapshot(self) -> dict[MetricName, float]:
        return self.metrics.snapshot()

    def _metadata_age(self) -> float:
        age_ms = self.network.metadata.age_ms(self.clock.monotonic_ms())
        return 0.0 if age_ms is None else age_ms / 1000


def _serialize(serializer: Serializer | None, topic: str, data: object, what: str) -> bytes | None:
    if data is None:
        return None
    if serializer is None:
        return check_bytes(data, what)
    try:
        return serializer.serialize(topic, data)
    except KafkaError:
        raise
    except Exception as error:
        raise SerializationError(
            f"the {what} for topic {topic!r} cannot be serialized: {error!r}"
        ) from error


def seconds_to_ms(timeout: float | None) -> int | None:
    if timeout is None:
        return None
    if timeout < 0:
        raise ConfigError(f"timeout={timeout}: it must not be negative")
    return int(timeout * 1000)


def as_headers(headers: Mapping[str, bytes | None] | Headers | None) -> Headers:
    """Returns headers as pairs, also from a mapping."""
    if not headers:
        return ()
    if isinstance(headers, Mapping):
        return tuple(headers.items())
    return headers
