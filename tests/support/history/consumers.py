"""Consumers of the workload: members of groups, ours and librdkafka's, and exactly-once copies.

They read committed records only, record each one, and commit what they have recorded.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.client import Consumer, Producer, RebalanceListener
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from tests.support.history.confluent_member import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from tests.support.history.history import (
    Assigned,
    HistoryRecorder,
    OffsetsCommitted,
    Read,
    RecordId,
)
from tests.support.history.producers import (
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

_COMMIT_PROBABILITY = 0.3
_LEAVE_PROBABILITY = 0.005
"""Of each poll: the member leaves the group, and joins again as another member."""
_MEMBERSHIP_S = (5.0, 40.0)
"""How long a process is a member of its group."""
_LEAVE_TIMEOUT_S = 20.0


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
    """A member of a group of librdkafka's consumers, in a process that is sometimes killed."""

    group = "confluent-readers"

    def run_client(self) -> None:
        command = [sys.executable, "-m", "tests.support.history.confluent_member"]
        with subprocess.Popen(
            [*command, self.bootstrap, self.group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            reader = threading.Thread(target=self._record, args=(process.stdout,), daemon=True)
            reader.start()
            self.pause_client(self.rng.uniform(*_MEMBERSHIP_S))
            if self.is_stopping or self.rng.random() < 0.5:
                process.stdin.close()
                reader.join(_LEAVE_TIMEOUT_S)
            process.kill()
            reader.join()

    def _record(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if not line.endswith(b"\n"):
                return  # the process was killed
            at, *fields = json.loads(line)
            match fields:
                case ["assigned", *partitions]:
                    assigned = tuple(TopicPartition(*pair) for pair in partitions)
                    self.recorder.add(Assigned(self.name, self.group, assigned), at)
                case ["read", topic, partition, offset, value]:
                    where = TopicPartition(topic, partition)
                    record = RecordId.of(value.encode())
                    self.recorder.add(Read(self.name, self.group, where, offset, record), at)
                case ["committed", *offsets]:
                    positions = tuple((TopicPartition(*pair[:2]), pair[2]) for pair in offsets)
                    self.recorder.add(OffsetsCommitted(self.name, self.group, positions), at)
                case ["note", text]:
                    self.recorder.note(f"{self.name}: {text}")


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
