"""A producer's decisions against brokers that fail in every way, by chance and replayable.

There is no I/O: the sender's requests go into queues, and the history decides when a broker sees
them, what it answers, whether the answer arrives, and whether a request of a broken connection
still comes in long after its retry.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from penstock.client.errors import DisconnectError, KafkaTimeoutError
from penstock.client.metrics import Metrics
from penstock.client.producer.accumulator import RecordAccumulator
from penstock.client.producer.appender import RecordAppender
from penstock.client.producer.buffer_pool import BufferPool
from penstock.client.producer.future import RecordFuture
from penstock.client.producer.options import producer_settings
from penstock.client.producer.sender import OutgoingProduce, Sender
from penstock.client.producer.sender_metrics import SenderMetrics
from penstock.client.producer.transaction_manager import TransactionManager
from penstock.client.producer.transaction_request import TxnRequest
from penstock.core.clock import ManualClock
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

TOPIC = "t"
TOPIC_ID = UUID(int=77)
PARTITIONS = 2
NODES = (1, 2)
POISON = b"poison"
"""A broker refuses a batch with such a value for good."""
_MAX_MESSAGE_BYTES = 170
"""Some batches are larger and have to be split."""
_NOT_NOW = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
_WRITTEN_BUT = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


@dataclass
class _Known:
    """What a broker remembers of a producer in a partition."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """First and last sequence, first offset."""
    starts_at_0: bool = False


class Partition:
    """A log with Kafka's rules for producers; replicas never lose anything."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.leader = 1
        self.leader_epoch = 0
        self._known: dict[int, _Known] = {}

    def append(self, data: PartitionProduceData) -> tuple[ErrorCode, int]:
        assert data.records is not None
        batch = read_header(data.records)
        verify(data.records, 0, batch)
        values = [bytes(each.value or b"") for each in read_records(data.records)]
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

    def marked(self, producer_id: int, epoch: int) -> None:
        """The end of a transaction is in the log; with a higher epoch, sequences start again."""
        known = self._known.get(producer_id)
        if known is None or known.epoch < epoch:
            self._known[producer_id] = _Known(epoch, starts_at_0=True)

    def _check(
        self, producer_id: int, epoch: int, first: int, count: int
    ) -> tuple[ErrorCode | None, int]:
        known = self._known.get(producer_id)
        last = first + count - 1
        if known is None:
            known = self._known[producer_id] = _Known(epoch)
        elif epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        elif epoch > known.epoch:
            if first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known = self._known[producer_id] = _Known(epoch)
        elif known.batches:
            for each in known.batches:
                if each[:2] == (first, last):
                    return ErrorCode.NONE, each[2]
            if first != known.batches[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif known.starts_at_0 and first != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known.batches.append((first, last, len(self.log)))
        return None, -1


@dataclass
class _Sent:
    call: OutgoingProduce
    request: ProduceRequest
    answer: ProduceResponse | None = None


class History:
    """One producer and two brokers. `run` sends records while everything goes wrong."""

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
        self._zombies_live = zombies
        self._poison = poison
        self._limit = settings["max_in_flight_requests_per_connection"]
        self.manager = TransactionManager(transactional_id) if idempotent else None
        self.accumulator = RecordAccumulator(
            settings,
            BufferPool(1 << 20, 200),
            sequences=self.manager.sequencer if self.manager else None,
        )
        self.appender = RecordAppender(settings, self.clock, self.accumulator)
        # Waits are spread by chance, which has to come from the seed too.
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
        self._links: dict[int, deque[_Sent]] = {node: deque() for node in NODES}
        self._zombies: list[tuple[int, ProduceRequest]] = []

    def run(self, records: int, *, chance_of_trouble: float = 0.3) -> None:
        """Sends so many records, then lets everything come to rest."""
        made = 0
        while made < records:
            if self.random.random() < 0.5:
                self.send_one(made)
                made += 1
            self.turn()
            if self.random.random() < chance_of_trouble:
                self.trouble()
            self.progress()
        self.accumulator.begin_flush()
        for _ in range(20_000):
            if not self.accumulator.has_incomplete() and not any(self._links.values()):
                break
            self.turn()
            self.progress(lossless=True)
        else:
            raise AssertionError("the producer does not come to rest")
        while self._zombies:
            self._wake_a_zombie()

    def send_one(self, number: int) -> TopicPartition:
        partition = self.random.randrange(PARTITIONS)
        value = b"%d" % number + b"." * self.random.randrange(40)
        if self._poison and self.random.random() < 0.03:
            value = POISON
        future = self.appender.append(
            TOPIC,
            partition,
            number,
            None,
            value,
            (),
            None,
            self.metadata.cluster,
            0,
            self.clock.monotonic_ms(),
        )
        self.sent.append((partition, value, future))
        return future.topic_partition

    def turn(self) -> None:
        self.clock.advance(self.random.randrange(4))
        if not self.sender.check_state():
            raise AssertionError("the producer has failed for good")
        if self.manager is not None:
            request = self.sender.next_transactional_request()
            if request is not None:
                self.ask(request)
        turn = self.sender.run_once(
            lambda node: len(self._links[node]) < self._limit, self.clock.monotonic_ms()
        )
        for call in turn.requests:
            built = call.build(13)
            # What is on the wire is what was sent: a batch that is numbered anew changes nothing.
            for topic in built.topic_data:
                for data in topic.partition_data:
                    assert data.records is not None
                    data.records = bytes(data.records)
            self._links[call.node_id].append(_Sent(call, built))
        if self.metadata.needs_refresh(self.clock.monotonic_ms()) and self.random.random() < 0.5:
            self._refresh()

    def ask(self, request: TxnRequest[Message]) -> None:
        """What a coordinator is asked for."""
        request.handle(InitProducerIdResponse(producer_id=1, producer_epoch=0))

    def progress(self, *, lossless: bool = False) -> None:
        """Brokers see requests in their order, answers arrive in it too."""
        now_ms = self.clock.monotonic_ms()
        for node, link in self._links.items():
            for sent in link:
                if sent.answer is None:
                    if self.random.random() < 0.3:
                        break
                    sent.answer = self._serve(node, sent.request, lossless=lossless)
            while link and link[0].answer is not None and self.random.random() < 0.6:
                done = link.popleft()
                self.sender.handle_response(done.call, done.answer, now_ms)
        if self._zombies and self.random.random() < 0.1:
            self._wake_a_zombie()

    def _serve(self, node: int, request: ProduceRequest, *, lossless: bool) -> ProduceResponse:
        (topic,) = request.topic_data
        answers = []
        for data in topic.partition_data:
            partition = self.partitions[data.index]
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            roll = 1.0 if lossless else self.random.random()
            if partition.leader != node:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                if self.random.random() < 0.5:
                    answer.current_leader = ProduceLeaderIdAndEpoch(
                        leader_id=partition.leader, leader_epoch=partition.leader_epoch
                    )
            elif roll < 0.05:
                answer.error_code = self.random.choice(_NOT_NOW)
            elif (code := self.check_transaction(data.index, request)) is not ErrorCode.NONE:
                answer.error_code = code
            else:
                code, offset = partition.append(data)
                answer.error_code, answer.base_offset = code, offset
                if code is ErrorCode.NONE and 0.9 < roll < 0.95:
                    answer.error_code = self.random.choice(_WRITTEN_BUT)
            answers.append(answer)
        return ProduceResponse(
            responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=answers)]
        )

    def check_transaction(self, partition: int, request: ProduceRequest) -> ErrorCode:
        """Whether the coordinator lets a transactional producer write to this partition."""
        return ErrorCode.NONE

    def trouble(self) -> None:
        if self.random.random() < 0.3:
            partition = self.random.choice(self.partitions)
            partition.leader = self.random.choice(NODES)
            partition.leader_epoch += 1
            return
        node = self.random.choice(NODES)
        link = self._links[node]
        error: KafkaError = DisconnectError("cut")
        if self.random.random() < 0.3:
            error = KafkaTimeoutError("silence")
        while link:
            sent = link.popleft()
            if sent.answer is None and self._zombies_live and self.random.random() < 0.5:
                self._zombies.append((node, sent.request))
            self.sender.handle_failure(sent.call, error, self.clock.monotonic_ms())

    def _wake_a_zombie(self) -> None:
        """A request that was in some buffer when its connection broke."""
        node, request = self._zombies.pop(self.random.randrange(len(self._zombies)))
        self._serve(node, request, lossless=True)

    def _refresh(self) -> None:
        described = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=list(NODES),
                isr_nodes=list(NODES),
            )
            for index, each in enumerate(self.partitions)
        ]
        self.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=node, host="h", port=1) for node in NODES],
                topics=[MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=described)],
            ),
            self.clock.monotonic_ms(),
            complete=True,
        )

    def acknowledged(self, partition: int) -> list[bytes]:
        """What the producer was told is in the log, in the order it was sent."""
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
