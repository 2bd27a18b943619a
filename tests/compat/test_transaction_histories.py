"""Kafka's classes and ours run the same transaction histories and write the same bytes (P4).

The steps of each transactional id are chosen from a seed and run by our transitions and by Kafka's.
The records must be equal byte for byte. If partitions or topics share a bucket of Java's hash
table, their order is undefined; then only the decoded records must be equal.
"""

from random import Random

from penstock.coordinator.machine import Skipped
from penstock.coordinator.txn.metadata import (
    MAX_EPOCH,
    NO_ID,
    TransactionMetadata,
    is_exhausted,
    metadata_of,
    prepare_add_partitions,
    prepare_complete,
    prepare_end,
    prepare_epoch,
    prepare_fence,
    prepare_producer_id_rotation,
    record_of,
)
from penstock.coordinator.txn.records import TransactionRecord, decode_record, encode_record
from penstock.coordinator.txn.state import TransactionState
from penstock.core.ids import TopicPartition
from penstock.core.java_hash import string_hash
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaParts

HISTORIES = 100
STEPS = 30
MOST_PARTITIONS = 11
"""The most partitions in one transaction; up to here Java's table keeps its bucket count."""
BUCKETS = 16
TOPICS = ["t", "orders", "a.long_name-of-a-topic", "b", "__consumer_offsets", "Ünï", "z9"]
S = TransactionState


def bucket(topic: str, partition: int | None = None) -> int:
    """Returns the bucket of a topic or a partition in a small Java hash table."""
    code = string_hash(topic) if partition is None else 31 * (31 + partition) + string_hash(topic)
    code &= 0xFFFFFFFF
    return (code ^ code >> 16) % BUCKETS


def spread() -> list[TopicPartition]:
    """Returns partitions of which no two, nor their topics, share a bucket."""
    topics = list({bucket(topic): topic for topic in TOPICS}.values())
    every = [TopicPartition(topic, number) for number in range(40) for topic in topics]
    return list({bucket(*partition): partition for partition in every}.values())


class History:
    """One transactional id: chooses the next step, runs it, and records it for Kafka."""

    def __init__(self, random: Random, number: int, partitions: list[TopicPartition]) -> None:
        self.random = random
        self.partitions = partitions
        self.level = random.choice([0, 1, 2])
        self.now = random.randrange(1, 1 << 40)
        epoch = random.choice([-1, MAX_EPOCH - 6])
        self.metadata = TransactionMetadata(
            f"id-{number}", number, 60_000, self.now, producer_epoch=epoch
        )
        self.lines = [f"new {self.level} id-{number} {number} {epoch} 60000 {self.now}"]
        self.records: list[TransactionRecord] = []

    def step(self) -> None:
        self.now += self.random.randrange(1000)
        state = self.metadata.state
        if state.is_ending:
            self._take(f"complete {self.now}", prepare_complete(self.metadata, self.now))
        elif self.metadata.producer_epoch == -1:
            self._increment()
        elif state is S.ONGOING:
            self.random.choice([self._add, self._add, self._end, self._fence])()
        else:
            steps = [self._increment, self._add, self._add]
            self.random.choice([*steps, self._end] if self.level == 2 else steps)()

    def _take(self, line: str, metadata: TransactionMetadata) -> None:
        self.metadata = metadata
        self.lines.append(line)
        self.records.append(record_of(metadata, self.level))

    def _increment(self) -> None:
        current = self.metadata.producer_epoch
        keeps_last_epoch = self.random.random() < 0.5
        last = current if keeps_last_epoch else -1
        timeout = self.random.randrange(1, 900_000)
        if is_exhausted(current):
            new_id = self.random.randrange(1 << 62)
            next_metadata = prepare_producer_id_rotation(
                self.metadata, new_id, timeout, self.now, last_epoch=last
            )
            self._take(
                f"rotate {new_id} {timeout} {str(keeps_last_epoch).lower()} {self.now}",
                next_metadata,
            )
            return
        next_metadata = prepare_epoch(
            self.metadata, timeout, self.now, epoch=current + 1, last_epoch=last
        )
        self._take(f"increment {timeout} {last} {self.now}", next_metadata)

    def _add(self) -> None:
        room = MOST_PARTITIONS - len(self.metadata.partitions)
        added = self.random.sample(self.partitions, self.random.randint(0, room))
        version = 2 if self.level == 2 else 0
        next_metadata = prepare_add_partitions(self.metadata, frozenset(added), version, self.now)
        names = " ".join(f"{topic}:{number}" for topic, number in added)
        self._take(f"add {version} {self.now} {names}".rstrip(), next_metadata)

    def _next_id(self) -> int:
        exhausted = self.level == 2 and self.metadata.is_epoch_exhausted
        return self.random.randrange(1 << 62) if exhausted else NO_ID

    def _end(self) -> None:
        ongoing = self.metadata.state is S.ONGOING
        state = self.random.choice([S.PREPARE_COMMIT, S.PREPARE_ABORT]) if ongoing else None
        state = state or S.PREPARE_ABORT
        version, next_id = (2 if self.level == 2 else 0), self._next_id()
        next_metadata = prepare_end(
            self.metadata, state, version, self.now, next_producer_id=next_id
        )
        self._take(f"end {state.name} {version} {next_id} {self.now}", next_metadata)

    def _fence(self) -> None:
        next_id = self._next_id()
        next_metadata = prepare_fence(self.metadata, self.level, next_id, self.now)
        self._take(f"fence {self.level} {next_id} {self.now}", next_metadata)


def run_histories(seed: int, partitions: list[TopicPartition]) -> list[History]:
    random = Random(seed)
    histories = [History(random, number, partitions) for number in range(HISTORIES)]
    for history in histories:
        for _ in range(STEPS):
            history.step()
    return histories


def lines_of(histories: list[History]) -> list[str]:
    """Returns the records as Kafka's program prints them."""
    lines = []
    for record in (record for history in histories for record in history.records):
        key, value = encode_record(record)
        assert value is not None
        lines.append(f"{key.hex()} {value.hex()} {record.last_producer_epoch}")
    return lines


def decoded(line: str) -> tuple[TransactionMetadata, int, str]:
    """Returns a decoded record, its length and the last epoch."""
    key, value, last_epoch = line.split()
    record = decode_record(bytes.fromhex(key), bytes.fromhex(value))
    assert not isinstance(record, Skipped)
    assert record.value is not None
    return metadata_of(record, record.value), len(value), last_epoch


def test_histories_have_kafkas_records(kafka_parts: KafkaParts) -> None:
    anything = [TopicPartition(topic, number) for topic in TOPICS for number in range(20)]
    apart, meeting = run_histories(890, spread()), run_histories(360, anything)
    sent = [line for history in [*apart, *meeting] for line in history.lines]
    run = kafka_parts.run(JAVA_DIRECTORY / "TransactionHistories.java", stdin="\n".join(sent))
    responses = run.stdout.splitlines()
    assert len(responses) == 2 * HISTORIES * STEPS
    assert lines_of(apart) == responses[: HISTORIES * STEPS]
    ours = [decoded(line) for line in lines_of(meeting)]
    assert ours == [decoded(line) for line in responses[HISTORIES * STEPS :]]
    assert any(metadata.producer_epoch == MAX_EPOCH for metadata, _, _ in ours)
    assert any(metadata.next_producer_id != NO_ID for metadata, _, _ in ours)
    assert {metadata.state for metadata, _, _ in ours} == set(S) - {S.DEAD, S.PREPARE_EPOCH_FENCE}
