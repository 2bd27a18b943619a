"""Consumers of the workload: members of groups, ours and librdkafka's, and exactly-once copies.

They read committed records only, record each one, and commit what they have recorded.
"""

from collections.abc import Sequence

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from penstock.client import Consumer, Producer, RebalanceListener
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from tests.support.history.history import (
    Assigned,
    HistoryRecorder,
    OffsetsCommitted,
    Read,
    RecordId,
)
from tests.support.history.producers import (
    LIBRDKAFKA_SETTINGS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
)
from tests.support.history.workers import (
    CALL_TIMEOUT_S,
    COPIES,
    PLAIN,
    TRANSACTIONAL,
    RestartClientError,
    Worker,
)

SESSION_TIMEOUT_MS = 6000
HEARTBEAT_INTERVAL_MS = 500
_COMMIT_PROBABILITY = 0.3
_LEAVE_PROBABILITY = 0.005
"""Of each poll: the member leaves the group, and joins again as another member."""


class Positions:
    """The positions after the records that a member has recorded in its current assignment."""

    def __init__(self, recorder: HistoryRecorder, consumer: str, group: str) -> None:
        self._recorder = recorder
        self._consumer = consumer
        self._group = group
        self.next_offsets: dict[TopicPartition, int] = {}

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.release(partitions)
        self._recorder.add(Assigned(self._consumer, self._group, tuple(partitions)))

    def release(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.next_offsets.pop(partition, None)

    def read(self, partition: TopicPartition, offset: int, value: bytes | None) -> None:
        self._recorder.add(Read(self._consumer, self._group, partition, offset, RecordId.of(value)))
        self.next_offsets[partition] = offset + 1

    def confirm(self, offsets: dict[TopicPartition, int]) -> None:
        self._recorder.add(OffsetsCommitted(self._consumer, self._group, tuple(offsets.items())))


class GroupWorker(Worker):
    """A member of a group of our consumers, which leaves and returns now and then."""

    group = "readers"
    protocol = "classic"

    def run_client(self) -> None:
        positions = Positions(self.recorder, self.name, self.group)
        with Consumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_protocol=self.protocol,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        ) as consumer:
            consumer.subscribe([PLAIN, TRANSACTIONAL], _Listener(self, consumer, positions))
            while not self.is_stopping and self.rng.random() > _LEAVE_PROBABILITY:
                for record in consumer.poll(0.2):
                    positions.read(
                        TopicPartition(record.topic, record.partition), record.offset, record.value
                    )
                if self.rng.random() < _COMMIT_PROBABILITY:
                    self.commit(consumer, positions)
            self.commit(consumer, positions)

    def commit(self, consumer: Consumer, positions: Positions) -> None:
        offsets = dict(positions.next_offsets)
        if not offsets:
            return
        try:
            consumer.commit(offsets, CALL_TIMEOUT_S)
        except KafkaError as error:
            self.recorder.note(f"{self.name} cannot commit: {error!r}")
        else:
            positions.confirm(offsets)


class ConsumerProtocolWorker(GroupWorker):
    """A member of a group with the protocol of KIP-848."""

    group = "new-readers"
    protocol = "consumer"


class _Listener(RebalanceListener):
    def __init__(self, worker: GroupWorker, consumer: Consumer, positions: Positions) -> None:
        self._worker = worker
        self._consumer = consumer
        self._positions = positions

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions.assign(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._worker.commit(self._consumer, self._positions)
        self._positions.release(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions.release(partitions)


class ConfluentGroupWorker(Worker):
    """A member of a group of librdkafka's consumers."""

    group = "confluent-readers"

    def run_client(self) -> None:
        positions = Positions(self.recorder, self.name, self.group)
        consumer = ConfluentConsumer(
            {
                **LIBRDKAFKA_SETTINGS,
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            }
        )

        def assigned(consumer: ConfluentConsumer, partitions: list[ConfluentPartition]) -> None:
            positions.assign(_own_partitions(partitions))

        def revoked(consumer: ConfluentConsumer, partitions: list[ConfluentPartition]) -> None:
            self._commit(consumer, positions)
            positions.release(_own_partitions(partitions))

        def lost(consumer: ConfluentConsumer, partitions: list[ConfluentPartition]) -> None:
            positions.release(_own_partitions(partitions))

        try:
            consumer.subscribe(
                [PLAIN, TRANSACTIONAL], on_assign=assigned, on_revoke=revoked, on_lost=lost
            )
            while not self.is_stopping and self.rng.random() > _LEAVE_PROBABILITY:
                for message in consumer.consume(100, 0.2):
                    error = message.error()
                    if error is not None:
                        self.recorder.note(f"{self.name}: {error!r}")
                        continue
                    positions.read(
                        TopicPartition(message.topic() or "", message.partition() or 0),
                        message.offset() or 0,
                        message.value(),
                    )
                if self.rng.random() < _COMMIT_PROBABILITY:
                    self._commit(consumer, positions)
            self._commit(consumer, positions)
        finally:
            consumer.close()

    def _commit(self, consumer: ConfluentConsumer, positions: Positions) -> None:
        offsets = dict(positions.next_offsets)
        if not offsets:
            return
        request = [
            ConfluentPartition(topic, number, offset) for (topic, number), offset in offsets.items()
        ]
        try:
            results = consumer.commit(offsets=request, asynchronous=False)
        except KafkaException as error:
            self.recorder.note(f"{self.name} cannot commit: {error!r}")
            return
        errors = [result.error for result in results or () if result.error is not None]
        if not errors:
            positions.confirm(offsets)


def _own_partitions(partitions: list[ConfluentPartition]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]


class CopyWorker(Worker):
    """Copies each record of PLAIN to COPIES exactly once.

    The copies and the position in PLAIN are committed in one transaction. After any error, producer
    and consumer are replaced, and continue from the position of the last committed transaction.
    """

    group = "copiers"

    def run_client(self) -> None:
        with (
            Producer(
                bootstrap_servers=self.bootstrap,
                transactional_id=self.base_name,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                delivery_timeout_ms=TRANSACTION_TIMEOUT_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                max_block_ms=int(CALL_TIMEOUT_S * 1000),
            ) as producer,
            Consumer(
                bootstrap_servers=self.bootstrap,
                group_id=self.group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            ) as consumer,
        ):
            producer.init_transactions()
            consumer.subscribe([PLAIN])
            while not self.is_stopping:
                records = consumer.poll(0.2, 50)
                if not records:
                    continue
                producer.begin_transaction()
                try:
                    for record in records:
                        producer.send(COPIES, record.value, partition=record.partition)
                    offsets = {
                        TopicPartition(record.topic, record.partition): record.offset + 1
                        for record in records
                    }
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                    producer.commit_transaction()
                except KafkaError as error:
                    raise RestartClientError(f"{error!r}") from error
