"""Kafka Streams with exactly_once_v2 on our broker: every word is counted once (P4, C3, C4).

A word count is killed twice: between two commits while lines arrive, and with an open transaction.
The third run must fence the producers of the earlier ones, restore its store from the changelog,
and resume at the last commit.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin._config import ConfigResource, ConfigSource
from confluent_kafka.cimpl import NewTopic

from tests.support.broker.process import start_broker
from tests.support.kafka import apps as kafka_apps
from tests.support.kafka.apps import App, KafkaApps, write_properties
from tests.support.kafka.broker import MissingPartError
from tests.support.kafka.once import once_per_run

pytestmark = pytest.mark.long


APPLICATION = "word-count"
INPUT, OUTPUT = "lines", "counts"
REPARTITION = f"{APPLICATION}-words-repartition"
CHANGELOG = f"{APPLICATION}-counts-changelog"
PARTITIONS = 2
THREADS = 2
LINES = 200
"""The number of lines of the third run; the others receive lines until they are killed."""

BROKER = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",  # the time until a killed member is removed
}
STREAMS = {
    "application.id": APPLICATION,
    "processing.guarantee": "exactly_once_v2",
    "num.stream.threads": str(THREADS),
    "commit.interval.ms": "100",
    "repartition.purge.interval.ms": "100",
    "statestore.cache.max.bytes": "0",  # emits each count of a word, not only the last
    "consumer.session.timeout.ms": "2000",
    "consumer.heartbeat.interval.ms": "300",
}
NO_COMMITS = {"commit.interval.ms": "50000", "producer.transaction.timeout.ms": "60000"}
GROUP: dict[str, str | int] = {
    "state": "STABLE",
    "type": "CLASSIC",
    "protocol": "stream",
    "members": THREADS,
    "partitions": 2 * PARTITIONS,
}


@dataclass(frozen=True)
class Outcome:
    words: list[str]
    """All words that were sent."""
    counts: list[tuple[str, int]]
    """The counts that a read_committed consumer reads at the end."""
    first_states: list[str]
    left_open: int
    """The number of words in transactions that the second kill left open."""
    configs: Mapping[str, Mapping[str, str]]
    """The configs of the internal topics of Kafka Streams."""
    purged_to: list[int]
    """The first offsets of the repartition topic."""
    group: Mapping[str, str | int]
    committed: list[int]
    """The offsets of the input that the group committed."""
    sent: list[int]
    """The end offsets of the input."""


class Offsets(NamedTuple):
    first: list[int]
    """The first offset of each partition."""
    ends: int
    """The sum of the end offsets."""


class CommittedReader:
    """Reads the committed records of a topic continuously."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.records: list[tuple[str, int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "isolation.level": "read_committed",
            }
        )
        partitions = [
            TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)
        ]
        self._consumer.assign(partitions)

    def count(self) -> int:
        """Returns the number of records so far, after a short wait for one more."""
        for message in self._consumer.consume(1000, timeout=0.05):
            key, value = message.key(), message.value()
            assert message.error() is None
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            self.records.append((key.decode(), int.from_bytes(value)))
        return len(self.records)

    def close(self) -> None:
        self._consumer.close()


class Job:
    """The word count on a broker, with its input and output."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.words: list[str] = []
        self.sent = [0] * PARTITIONS
        self.admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
        for future in self.admin.create_topics(topics).values():
            future.result(20)
        self._directory = directory
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._lines = 0

    def app(self, **settings: str) -> App:
        state = {"bootstrap.servers": self.bootstrap, "state.dir": str(self._directory / "state")}
        path = self._directory / "streams.properties"
        properties = write_properties(path, {**STREAMS, **state, **settings})
        return App(KafkaApps.find(), self._directory, "WordCount", properties, INPUT, OUTPUT)

    def send(self, lines: int) -> None:
        for number in range(self._lines, self._lines + lines):
            words = ["every", f"of-{number % 3}", f"of-{number % 10}"]
            partition = number % PARTITIONS
            self._producer.produce(INPUT, " ".join(words), partition=partition)
            self.words += words
            self.sent[partition] += 1
        self._lines += lines
        assert self._producer.flush(20) == 0

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(20)
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in entries.items() if entry.source == source}

    def group(self) -> dict[str, str | int]:
        result = self.admin.describe_consumer_groups([APPLICATION])[APPLICATION].result(20)
        owned = [
            topic_partition
            for member in result.members
            for topic_partition in member.assignment.topic_partitions
        ]
        return {
            "state": result.state.name,
            "type": result.type.name,
            "protocol": result.partition_assignor,
            "members": len(result.members),
            "partitions": len(
                {(topic_partition.topic, topic_partition.partition) for topic_partition in owned}
            ),
        }

    def offsets(self, topic: str, isolation: str = "read_uncommitted") -> Offsets:
        """Returns the first and end offsets of the partitions for this isolation level."""
        with closing(self._consumer(isolation)) as consumer:
            result = [
                consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
                for number in range(PARTITIONS)
            ]
        return Offsets([first for first, _ in result], sum(last for _, last in result))

    def open_words(self) -> int:
        """Returns the number of words in open transactions."""
        return self.offsets(REPARTITION).ends - self.offsets(REPARTITION, "read_committed").ends

    def committed(self) -> list[int]:
        partitions = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
        with closing(self._consumer()) as consumer:
            return [
                topic_partition.offset
                for topic_partition in consumer.committed(partitions, timeout=10)
            ]

    def _consumer(self, isolation: str = "read_uncommitted") -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": APPLICATION}
        return Consumer({**settings, "isolation.level": isolation})


def _count_words(directory: Path) -> Outcome:
    (directory / "app").mkdir()
    with start_broker(directory / "broker", BROKER) as broker:
        job = Job(broker.bootstrap, directory / "app")
        with closing(CommittedReader(broker.bootstrap, OUTPUT)) as output:
            first_states = _killed_while_lines_come_in(job, output)
            left_open = _killed_in_a_transaction(job)
            job.send(LINES)
            with job.app() as app:
                app.wait_for(lambda: output.count() >= len(job.words), "the last counts")
                app.wait_for(lambda: min(job.offsets(REPARTITION).first) > 0, "a purge")
                app.wait_for(lambda: job.committed() == job.sent, "the last commit")
                app.wait_for(lambda: job.group() == GROUP, "a settled group")
                group = job.group()
                app.stop()
            output.count()
        return Outcome(
            words=job.words,
            counts=output.records,
            first_states=first_states,
            left_open=left_open,
            configs={topic: job.configs(topic) for topic in (REPARTITION, CHANGELOG)},
            purged_to=job.offsets(REPARTITION).first,
            group=group,
            committed=job.committed(),
            sent=job.sent,
        )


def _killed_while_lines_come_in(job: Job, output: CommittedReader) -> list[str]:
    def counts_come_out() -> bool:
        job.send(5)
        return output.count() > 100

    with job.app() as app:
        app.wait_for(counts_come_out, "the first counts")
        app.kill()
        return [line for line in app.printed() if line.isupper()]


def _killed_in_a_transaction(job: Job) -> int:
    """Kills the job with an open transaction and returns the number of words in it."""
    before = job.offsets(REPARTITION).ends

    def words_wait_for_a_commit() -> bool:
        job.send(5)
        return job.offsets(REPARTITION).ends > before + LINES and job.open_words() > LINES / 2

    with job.app(**NO_COMMITS) as app:
        app.wait_for(words_wait_for_a_commit, "words without a commit")
        app.kill()
    return job.open_words()


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    try:
        KafkaApps.find()
    except MissingPartError as missing:
        pytest.fail(str(missing), pytrace=False)
    return once_per_run(tmp_path_factory, "streams", _count_words)


def test_every_word_is_counted_once(outcome: Outcome) -> None:
    """P4, C4: each word's counts are 1, 2, 3 … in this order, despite the kills."""
    result: dict[str, list[int]] = {}
    for word, count in outcome.counts:
        result.setdefault(word, []).append(count)
    expected = {word: list(range(1, n + 1)) for word, n in Counter(outcome.words).items()}
    assert result == expected
    assert len(result) == 11


def test_the_kills_interrupted_the_work(outcome: Outcome) -> None:
    assert {"REBALANCING", "RUNNING"} == set(outcome.first_states)
    assert outcome.left_open > LINES / 2


def test_internal_topics_have_the_settings_of_streams(outcome: Outcome) -> None:
    """M2."""
    assert outcome.configs == {
        REPARTITION: {
            "cleanup.policy": "delete",
            "message.timestamp.type": "CreateTime",
            "retention.ms": "-1",
            "segment.bytes": "52428800",
        },
        CHANGELOG: {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
    }


def test_processed_repartition_records_are_deleted(outcome: Outcome) -> None:
    """S4: DeleteRecords on the repartition topic, up to the group's committed offset."""
    assert min(outcome.purged_to) > 0


def test_streams_uses_a_classic_group_with_its_own_assignor(outcome: Outcome) -> None:
    """C2, C3: the classic protocol is the default."""
    assert outcome.group == GROUP
    assert outcome.committed == outcome.sent


def test_a_missing_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_apps, "ROOT", tmp_path)
    with pytest.raises(MissingPartError, match=r"Streams and Connect .* missing: run make setup"):
        KafkaApps.find()
