"""The producer: `send` from any thread, a thread of its own delivers."""

import atexit
import logging
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self, TypeVar, Unpack

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.errors import ClientError, IllegalStateError, KafkaTimeoutError
from penstock.client.loop_thread import LoopThread
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

log = logging.getLogger(__name__)

T = TypeVar("T")
_AT_EXIT_S: Final = 5.0
_open: "weakref.WeakSet[Producer]" = weakref.WeakSet()


class Producer:
    """Sends records to topics. All methods may be called from any thread.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("orders", b"value", key=b"key").result()

    `send` returns as soon as the record is in a batch; batches are sent by a thread. Callbacks and
    interceptors run on that thread: they must not block, and blocking calls of the producer are
    refused there. Close it: `with`, or `close()`. A producer that is forgotten warns
    (ResourceWarning); one that is still open when the interpreter ends gets five seconds to deliver
    what it has.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        settings = producer_settings(options)
        self._core = core = ProducerCore(settings, SystemClock())
        self._is_done = False
        self._loop_thread = LoopThread(f"penstock-{settings['client_id']}")
        try:
            self._loop_thread.run(core.start(is_threaded=True))
        except BaseException:
            self._is_done = True
            self._loop_thread.close()
            raise
        # What `send` needs for every record, without a way through other objects.
        self._append = core.accumulator.append
        self._manager = core.manager
        self._is_transactional = settings["transactional_id"] is not None
        self._is_plain = core.is_plain
        self._metadata = core.network.metadata
        self._max_block_ms = core.max_block_ms
        self._safe_size = core.safe_size
        _open.add(self)

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        headers: Mapping[str, bytes | None] | Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Send a record. The future gives its partition and offset, or raises why it failed.

        Key and value are bytes or None, unless there is a serializer. Without a partition the key
        decides, without a key the records stick to a partition until a batch is full. `timestamp`
        is in milliseconds, now unless given. `on_delivery(metadata, error)` is called on the
        sender's thread.

        Waits up to `max_block_ms` for the topic's metadata and for memory. What cannot be sent at
        all is raised here: RecordTooLargeError (E2), UnknownTopicError (E5), AuthorizationError
        (E3), BufferExhaustedError, SerializationError, IllegalStateError.
        """
        manager = self._manager
        if self._is_done or not self._is_plain or (manager is not None and not manager.sendable):
            return self._send_any(topic, value, key, headers, partition, timestamp, on_delivery)
        if value.__class__ is not bytes:
            value = check_bytes(value, "value")
        if key is not None and key.__class__ is not bytes:
            key = check_bytes(key, "key")
        cluster = self._metadata.cluster
        known = cluster.topics.get(topic)
        if (
            known is None
            or not known.partitions
            or headers
            or (len(value or b"") + len(key or b"")) > self._safe_size
        ):
            return self._send_any(topic, value, key, headers, partition, timestamp, on_delivery)
        if partition is None:
            if key is None:
                partition = UNKNOWN_PARTITION
            else:
                partition = partition_for_key(key, len(known.partitions))
        elif not 0 <= partition < len(known.partitions):
            return self._send_any(topic, value, key, headers, partition, timestamp, on_delivery)
        future = self._append(
            topic,
            partition,
            time.time_ns() // 1_000_000 if timestamp is None else timestamp,
            key,
            value,
            (),
            on_delivery,
            cluster,
            self._max_block_ms,
            time.monotonic_ns() // 1_000_000,
        )
        if self._is_transactional:
            self._add_partition(future.topic_partition)
        return future

    def _send_any(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Mapping[str, bytes | None] | Headers | None,
        partition: int | None,
        timestamp: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> RecordFuture:
        core = self._core
        core.check_open()
        record = core.intercepted(topic, value, key, as_headers(headers), partition, timestamp)
        try:
            return self._send_record(record, on_delivery)
        except ClientError as error:
            core.send_failed(record, error)
            if self._is_transactional:
                self._on_loop(core.spoil_transaction, error)
            raise

    def _send_record(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> RecordFuture:
        core = self._core
        if self._manager is not None:
            self._manager.check_send()
        started_ms = core.clock.monotonic_ms()
        cluster = self._cluster_with(record.topic, record.partition)
        key, value = core.serialized(record)
        partition = core.partition_of(record, key, value, cluster)
        core.check_size(key, value, record.headers)
        now_ms = core.clock.monotonic_ms()
        future = self._append(
            record.topic,
            partition,
            core.clock.now_ms() if record.timestamp is None else record.timestamp,
            key,
            value,
            record.headers,
            core.acknowledging(record, on_delivery),
            cluster,
            max(0, self._max_block_ms - (now_ms - started_ms)),
            now_ms,
        )
        if self._is_transactional:
            self._add_partition(future.topic_partition)
        return future

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        headers: Mapping[str, bytes | None] | Headers | None = None,
        timestamps: Sequence[int] | None = None,
    ) -> BulkFuture:
        """Send many records at once; one future for all of them, in their order.

        The fastest way in: values and keys must be bytes, serializers, partitioners and
        interceptors are not asked. All records get the same `headers`.
        """
        core = self._core
        core.check_open()
        if self._manager is not None and not self._manager.sendable:
            self._manager.check_send()
        started_ms = core.clock.monotonic_ms()
        cluster = self._cluster_with(topic, partition)
        now_ms = core.clock.monotonic_ms()
        future = core.accumulator.append_many(
            topic,
            UNKNOWN_PARTITION if partition is None else partition,
            values,
            keys,
            timestamps,
            core.clock.now_ms(),
            cluster,
            max(0, self._max_block_ms - (now_ms - started_ms)),
            now_ms,
            headers=as_headers(headers),
            batch_size=core.bulk_batch_size,
        )
        if self._is_transactional:
            for each in future.topic_partitions:
                self._add_partition(each)
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until it is acknowledged, or has failed.

        KafkaTimeoutError after `timeout` seconds; what was not delivered is still on its way then.
        """
        core = self._core
        self._refuse_own_thread("flush")
        started = time.monotonic_ns()
        deadline = None if timeout is None else time.monotonic() + timeout
        core.accumulator.begin_flush()
        try:
            core.driver.wake()
            for result in core.accumulator.incomplete_results():
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not result.wait(left):
                    raise KafkaTimeoutError(
                        f"not everything was delivered within {timeout} s; it is still on its way"
                    )
        finally:
            core.accumulator.end_flush()
            core.sensors.took("flush", time.monotonic_ns() - started)

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic; waits for them up to `max_block_ms`."""
        self._core.check_open()
        return self._cluster_with(topic, None).topics[topic].partitions

    def metrics(self) -> dict[MetricName, float]:
        """All metrics now, under Kafka's names: `record-send-rate` of `producer-metrics` …"""
        return self._core.snapshot()

    # Transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Once, before anything else: fences older producers with this `transactional_id`, and
        waits for what they left behind. Times are `max_block_ms` unless given, here and below."""
        self._loop_thread.run(self._core.init_transactions(self._ms(timeout)))

    def begin_transaction(self) -> None:
        self._loop_thread.run(self._core.begin_transaction())

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group with the transaction: the next to read of each partition.

        `group_metadata` is `consumer.group_metadata()`; the group's id alone fences nobody.
        """
        self._loop_thread.run(
            self._core.send_offsets_to_transaction(offsets, group_metadata, self._ms(timeout))
        )

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver what was sent and commit. After an error: `abort_transaction`, unless the
        producer is fenced or failed for good. After KafkaTimeoutError: the same call again."""
        self._loop_thread.run(self._core.commit_transaction(self._ms(timeout)))

    def abort_transaction(self, timeout: float | None = None) -> None:
        self._loop_thread.run(self._core.abort_transaction(self._ms(timeout)))

    # The end

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is pending, for at most `timeout` seconds, then fail the rest.

        From a callback it does not wait, and fails what is pending. May be called twice.
        """
        timeout_ms = seconds_to_ms(timeout)
        if self._is_done:
            return
        self._is_done = True
        _open.discard(self)
        core, thread = self._core, self._loop_thread
        core.is_closed = True
        if thread.is_current():
            log.warning("close was called in a callback: what is pending is not waited for")
            thread.loop.create_task(_close_from_within(core, thread))
            return
        try:
            thread.run(core.close(timeout_ms))
        except BaseException:
            thread.run(core.close(0))
            raise
        finally:
            thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_done", True):
            return
        warnings.warn(
            f"a producer ({self._core.settings['client_id']}) was not closed: use `with`, or "
            "close(); what it has is still delivered",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        self._is_done = True
        core, thread = self._core, self._loop_thread
        core.is_closed = True
        thread.post(lambda: thread.loop.create_task(_close_and_stop(core, thread)))

    # Parts

    def _cluster_with(self, topic: str, partition: int | None) -> Cluster:
        core = self._core
        cluster = core.known_cluster(topic, partition)
        if cluster is None or (partition is not None and partition < 0):
            cluster = self._loop_thread.run(core.wait_for_topic(topic, partition))
        return cluster

    def _add_partition(self, partition: TopicPartition) -> None:
        manager = self._manager
        assert manager is not None
        if not manager.knows(partition):
            self._on_loop(self._core.add_partition, partition)

    def _on_loop(self, call: Callable[[T], None], argument: T) -> None:
        """The machine belongs to the loop; a callback is there already."""
        if self._loop_thread.is_current():
            call(argument)
            return

        async def work() -> None:
            call(argument)

        self._loop_thread.run(work())

    def _refuse_own_thread(self, call: str) -> None:
        if self._loop_thread.is_current():
            raise IllegalStateError(
                f"{call} in a callback would wait for itself: call it from another thread"
            )

    def _ms(self, timeout: float | None) -> int:
        given = seconds_to_ms(timeout)
        return self._max_block_ms if given is None else given


async def _close_from_within(core: ProducerCore, thread: LoopThread) -> None:
    await core.close(0)
    thread.close()


async def _close_and_stop(core: ProducerCore, thread: LoopThread) -> None:
    await core.close(None)
    thread.close()


@atexit.register
def _deliver_at_exit() -> None:
    """Threads stop with the interpreter: whoever forgot to close loses no records unheard."""
    for producer in list(_open):
        core = producer._core
        count = len(core.accumulator.incomplete_results())
        try:
            producer.close(_AT_EXIT_S)
        finally:
            if count:
                log.warning(
                    "producer %s was not closed; %s batches were pending when the program ended, "
                    "and had %s s to be delivered",
                    core.settings["client_id"],
                    count,
                    _AT_EXIT_S,
                )
