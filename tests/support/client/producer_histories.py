"""Random histories of a producer and brokers that fail in every way, repeatable from a seed.

There is no I/O: the sender's requests go into queues, and the history decides when a broker handles
them, how it responds, whether the response arrives, and whether a request of a broken connection
still reaches the broker long after its retry.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from penstock.client.errors import DisconnectError, KafkaTimeoutError
from penstock.client.metrics import Metrics
from penstock.client.producer.accumulator import RecordAccumulator
from penstock.client.producer.appender import RecordAppender, RecordToAppend
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.future import RecordFuture
from penstock.client.producer.options import producer_settings
from penstock.client.producer.sender import OutgoingProduce, Sender
from penstock.client.producer.sender_metrics import SenderMetrics
from penstock.client.producer.transaction_manager import TransactionManager
from penstock.client.producer.transaction_request import TxnRequest
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.backoff import Backoff
from penstock.net.client.cluster import Node
from penstock.net.client.metadata import ClusterMetadata
from penstock.protocol.fields import Message
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.records.batch import read_header, verify
from penstock.records.read import read_records
from tests.support.clock import ManualClock

TOPIC = "t"
TOPIC_ID = UUID(int=77)
PARTITIONS = 2
NODES = (1, 2)
POISON = b"poison"
"""A broker rejects a batch with such a value permanently."""
_MAX_MESSAGE_BYTES = 170
"""Larger batches must be split."""
_RETRIABLE_ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
_STORED_DESPITE_ERROR = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


@dataclass
class _ProducerState:
    """The state of a producer in a partition of a broker."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """The first and last sequence, and the first offset, of the last five batches."""
    starts_at_0: bool = False


class Partition:
    """A log with Kafka's rules for producers; replicas never lose records."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.leader = 1
        self.leader_epoch = 0
        self._producers: dict[int, _ProducerState] = {}

    def append(self, data: PartitionProduceData) -> tuple[ErrorCode, int]:
        assert data.records is not None
        batch = read_header(data.records)
        verify(data.records, 0, batch)
        values = [bytes(record.value or b"") for record in read_records(data.records)]
        if POISON in values:
            return ErrorCode.INVALID_RECORD, -1
        if batch.size > _MAX_MESSAGE_BYTES and len(values) > 1:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if batch.producer_id >= 0:
            code, offset = self._check(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, len(values)
            )
            if code is not None:
                return code, offset
        offset = len(self.log)
        self.log += values
        return ErrorCode.NONE, offset

    def write_marker(self, producer_id: int, epoch: int) -> None:
        """Ends a transaction; with a higher epoch, sequences restart at 0."""
        state = self._producers.get(producer_id)
        if state is None or state.epoch < epoch:
            self._producers[producer_id] = _ProducerState(epoch, starts_at_0=True)

    def _check(
        self, producer_id: int, epoch: int, first: int, count: int
    ) -> tuple[ErrorCode | None, int]:
        state = self._producers.get(producer_id)
        last = first + count - 1
        if state is None:
            state = self._producers[producer_id] = _ProducerState(epoch)
        elif epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        elif epoch > state.epoch:
            if first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            state = self._producers[producer_id] = _ProducerState(epoch)
        elif state.batches:
            for batch_first, batch_last, offset in state.batches:
                if (batch_first, batch_last) == (first, last):
                    return ErrorCode.NONE, offset
            if first != state.batches[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif state.starts_at_0 and first != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        state.batches.append((first, last, len(self.log)))
        return None, -1


@dataclass
class _Sent:
    produce: OutgoingProduce
    request: ProduceRequest
    response: ProduceResponse | None = None


class History:
    """One producer and two brokers. `run` sends records while brokers and connections fail."""

    def __init__(
        self,
        seed: int,
        *,
        idempotent: bool,
        zombies: bool = True,
        poison: bool = False,
        delivery_timeout_ms: int = 10_000_000,
        transactional_id: str | None = None,
    ) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        self.sent: list[tuple[int, bytes, RecordFuture]] = []
        settings = producer_settings(
            {
                "bootstrap_servers": "x:1",
                "enable_idempotence": idempotent,
                "transactional_id": transactional_id,
                "max_in_flight_requests_per_connection": 5 if idempotent else 1,
                "batch_size": 200,
                "linger_ms": 3,
                "retry_backoff_ms": 5,
                "retry_backoff_max_ms": 20,
                "delivery_timeout_ms": delivery_timeout_ms,
                "request_timeout_ms": 20,
            }
        )
        self._has_zombies = zombies
        self._poison = poison
        self._limit = settings["max_in_flight_requests_per_connection"]
        self.manager = TransactionManager(transactional_id) if idempotent else None
        self.accumulator = RecordAccumulator(
            settings,
            BufferPool(1 << 20, 200),
            sequences=self.manager.sequencer if self.manager else None,
        )
        self.appender = RecordAppender(settings, self.clock, self.accumulator)
        # Backoffs are random, and must come from the seed too.
        self.accumulator._backoff = Backoff(5, 20, rng=self.random.random)
        self.metadata = ClusterMetadata([Node(-1, "x", 1)], max_age_ms=10**9)
        self.metadata.add_topics([TOPIC], 0)
        self._refresh()
        self.sender = Sender(
            settings,
            self.accumulator,
            self.metadata,
            self.manager,
            SenderMetrics(Metrics(self.clock)),
        )
        self._connections: dict[int, deque[_Sent]] = {node: deque() for node in NODES}
        self._zombies: list[tuple[int, ProduceRequest]] = []

    def run(self, records: int, *, failure_rate: float = 0.3) -> None:
        """Sends so many records, then runs until all are acknowledged or have failed."""
        count = 0
        while count < records:
            if self.random.random() < 0.5:
                self.send_one(count)
                count += 1
            self.run_sender()
            if self.random.random() < failure_rate:
                self.inject_failure()
            self.progress()
        self.accumulator.begin_flush()
        for _ in range(20_000):
            if not self.accumulator.has_incomplete() and not any(self._connections.values()):
                break
            self.run_sender()
            self.progress(lossless=True)
        else:
            raise AssertionError("batches remain incomplete")
        while self._zombies:
            self._deliver_zombie()

    def send_one(self, number: int) -> TopicPartition:
        partition = self.random.randrange(PARTITIONS)
        value = b"%d" % number + b"." * self.random.randrange(40)
        if self._poison and self.random.random() < 0.03:
            value = POISON
        record = RecordToAppend(
            TOPIC, partition, number, None, value, (), None, self.metadata.cluster
        )
        future = self.appender.append(record, 0, self.clock.monotonic_ms())
        self.sent.append((partition, value, future))
        return future.topic_partition

    def run_sender(self) -> None:
        self.clock.advance(self.random.randrange(4))
        if not self.sender.check_state():
            raise AssertionError("the producer has a fatal error")
        if self.manager is not None:
            request = self.sender.next_transactional_request()
            if request is not None:
                self.handle_request(request)
        plan = self.sender.run_once(
            lambda node: len(self._connections[node]) < self._limit, self.clock.monotonic_ms()
        )
        for produce in plan.requests:
            message = produce.build(13)
            # A copy, because a batch that gets new sequences must not change the request.
            for topic in message.topic_data:
                for data in topic.partition_data:
                    assert data.records is not None
                    data.records = bytes(data.records)
            self._connections[produce.node_id].append(_Sent(produce, message))
        if self.metadata.needs_refresh(self.clock.monotonic_ms()) and self.random.random() < 0.5:
            self._refresh()

    def handle_request(self, request: TxnRequest[Message]) -> None:
        """Responds to a request to a coordinator."""
        request.handle(InitProducerIdResponse(producer_id=1, producer_epoch=0))

    def progress(self, *, lossless: bool = False) -> None:
        """Lets brokers handle requests and responses arrive, both in order."""
        now_ms = self.clock.monotonic_ms()
        for node, connection in self._connections.items():
            for sent in connection:
                if sent.response is None:
                    if self.random.random() < 0.3:
                        break
                    sent.response = self._serve(node, sent.request, lossless=lossless)
            while connection and connection[0].response is not None and self.random.random() < 0.6:
                done = connection.popleft()
                self.sender.handle_response(done.produce, done.response, now_ms)
        if self._zombies and self.random.random() < 0.1:
            self._deliver_zombie()

    def _serve(self, node: int, request: ProduceRequest, *, lossless: bool) -> ProduceResponse:
        (topic,) = request.topic_data
        responses = []
        for data in topic.partition_data:
            partition = self.partitions[data.index]
            response = PartitionProduceResponse(index=data.index, base_offset=-1)
            roll = 1.0 if lossless else self.random.random()
            if partition.leader != node:
                response.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                if self.random.random() < 0.5:
                    response.current_leader = ProduceLeaderIdAndEpoch(
                        leader_id=partition.leader, leader_epoch=partition.leader_epoch
                    )
            elif roll < 0.05:
                response.error_code = self.random.choice(_RETRIABLE_ERRORS)
            elif (code := self.check_transaction(data.index, request)) is not ErrorCode.NONE:
                response.error_code = code
            else:
                code, offset = partition.append(data)
                response.error_code, response.base_offset = code, offset
                if code is ErrorCode.NONE and 0.9 < roll < 0.95:
                    response.error_code = self.random.choice(_STORED_DESPITE_ERROR)
            responses.append(response)
        return ProduceResponse(
            responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=responses)]
        )

    def check_transaction(self, partition: int, request: ProduceRequest) -> ErrorCode:
        """Returns the error of a producer that may not write to this partition."""
        return ErrorCode.NONE

    def inject_failure(self) -> None:
        if self.random.random() < 0.3:
            partition = self.random.choice(self.partitions)
            partition.leader = self.random.choice(NODES)
            partition.leader_epoch += 1
            return
        node = self.random.choice(NODES)
        connection = self._connections[node]
        error: KafkaError = DisconnectError("cut")
        if self.random.random() < 0.3:
            error = KafkaTimeoutError("silence")
        while connection:
            sent = connection.popleft()
            if sent.response is None and self._has_zombies and self.random.random() < 0.5:
                self._zombies.append((node, sent.request))
            self.sender.handle_failure(sent.produce, error, self.clock.monotonic_ms())

    def _deliver_zombie(self) -> None:
        """Delivers a request that was in a buffer when its connection broke."""
        node, request = self._zombies.pop(self.random.randrange(len(self._zombies)))
        self._serve(node, request, lossless=True)

    def _refresh(self) -> None:
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(NODES),
                isr_nodes=list(NODES),
            )
            for index, partition in enumerate(self.partitions)
        ]
        self.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=node, host="h", port=1) for node in NODES],
                topics=[
                    MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)
                ],
            ),
            self.clock.monotonic_ms(),
            complete=True,
        )

    def acknowledged(self, partition: int) -> list[bytes]:
        """Returns the acknowledged values of a partition, in the order they were sent."""
        return [
            value
            for index, value, future in self.sent
            if index == partition and future.exception(0) is None
        ]

    def failed(self) -> list[tuple[TopicPartition, bytes]]:
        return [
            (future.topic_partition, value)
            for _, value, future in self.sent
            if future.exception(0) is not None
        ]
