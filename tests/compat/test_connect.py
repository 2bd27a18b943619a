"""Kafka Connect on our broker: from a file through a topic into a file, over restarts (C2, C3, P4).

Standalone, the simplest mode; and distributed, whose workers form a group with their own protocol
type, store their state in compacted topics, and write exactly once with transactions.
"""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin._config import ConfigResource

from tests.support.broker.process import start_broker
from tests.support.kafka.apps import App, KafkaApps, write_properties
from tests.support.kafka.broker import MissingPartError
from tests.support.kafka.once import once_per_run

pytestmark = pytest.mark.long


with warnings.catch_warnings():
    # It loads its schemas with an API that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient

TOPIC = "lines"
SINK_GROUP = "connect-file-sink"
CLUSTER = "workers"
STORES = ("the-configs", "the-offsets", "the-status")
FIRST = [f"line {number}" for number in range(50)]
SECOND = [f"line {number}" for number in range(50, 120)]

BROKER = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",  # the time until a killed worker is removed
}
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "listeners": "http://127.0.0.1:0",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "200",
    "consumer.session.timeout.ms": "2000",
    "consumer.heartbeat.interval.ms": "300",
    "consumer.isolation.level": "read_committed",
}
STANDALONE = {"offset.storage.file.filename": "offsets"}
DISTRIBUTED = {
    "group.id": CLUSTER,
    "session.timeout.ms": "2000",
    "heartbeat.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
    "exactly.once.source.support": "enabled",
    "config.storage.topic": STORES[0],
    "config.storage.replication.factor": "1",
    "offset.storage.topic": STORES[1],
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "2",
    "status.storage.topic": STORES[2],
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "2",
}
SOURCE = {
    "name": "file-source",
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "1",
    "file": "source.txt",
    "topic": TOPIC,
}
SINK = {
    "name": "file-sink",
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "tasks.max": "1",
    "file": "sink.txt",
    "topics": TOPIC,
}


Group: TypeAlias = tuple[str, str]
"""The group's protocol type and state."""
A_SINK: Group = ("consumer", "Stable")

ADDRESS = re.compile(r"REST server listening at http://(\S+)/,")
READY = "server is started and ready to handle requests"


@dataclass(frozen=True)
class Outcome:
    after_first_run: list[str]
    """The lines of the sink's file."""
    at_the_end: list[str]
    in_the_topic: list[str]
    """The records that a read_committed consumer reads."""
    end_offset: int
    """The end offset of the topic, which includes transaction markers."""
    committed: int
    """The offset that the sink committed in its group."""
    groups: Mapping[str, Group]
    """The groups by name, while the worker runs."""
    policies: Mapping[str, str]
    """The cleanup policy of each topic."""


class Pipe:
    """A worker's directory with the source and sink files, and a client of the broker."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.bootstrap = bootstrap
        self.admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})

    def append(self, lines: list[str]) -> None:
        with (self.directory / "source.txt").open("a") as source:
            source.writelines(f"{line}\n" for line in lines)

    def received(self) -> list[str]:
        sink = self.directory / "sink.txt"
        return sink.read_text().splitlines() if sink.exists() else []

    def worker(self, main: str, settings: Mapping[str, str], *connectors: str) -> App:
        broker = {"bootstrap.servers": self.bootstrap}
        properties = write_properties(
            self.directory / "worker.properties", {**broker, **WORKER, **settings}
        )
        main = f"org.apache.kafka.connect.cli.{main}"
        return App(KafkaApps.find(), self.directory, main, properties, *connectors)

    def committed(self) -> int:
        with closing(self._consumer(SINK_GROUP)) as consumer:
            [committed_offset] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=10)
            return committed_offset.offset

    def groups(self) -> dict[str, Group]:
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            return {
                result["group_id"]: (result["protocol_type"], result["group_state"])
                for result in admin.list_groups()
            }

    def policy(self, topic: str) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        configs = self.admin.describe_configs([resource])[resource].result(20)
        return str(configs["cleanup.policy"].value)

    def read(self) -> tuple[list[str], int]:
        """Returns all committed lines of the topic and its end offset."""
        lines = []
        with closing(self._consumer("none")) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
            while (message := consumer.poll(10)) is not None:
                error, value = message.error(), message.value()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    break
                assert isinstance(value, bytes)
                lines.append(value.decode())
            _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
        return lines, end

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )


def _standalone(directory: Path) -> Outcome:
    with start_broker(directory / "broker", BROKER) as broker:
        pipe = Pipe(directory / "worker", broker.bootstrap)
        source = write_properties(pipe.directory / "source.properties", SOURCE)
        sink = write_properties(pipe.directory / "sink.properties", SINK)
        worker = pipe.worker("ConnectStandalone", STANDALONE, source, sink)
        return _run_twice(pipe, worker, lambda: None, worker.stop, (TOPIC,))


def _distributed(directory: Path) -> Outcome:
    with start_broker(directory / "broker", BROKER) as broker:
        pipe = Pipe(directory / "worker", broker.bootstrap)
        worker = pipe.worker("ConnectDistributed", DISTRIBUTED)
        return _run_twice(pipe, worker, lambda: _connect(worker), worker.kill, (TOPIC, *STORES))


def _run_twice(
    pipe: Pipe,
    worker: App,
    connect: Callable[[], None],
    end: Callable[[], None],
    topics: tuple[str, ...],
) -> Outcome:
    """Sends half of the lines in each run; the second half is written before the worker starts."""
    pipe.append(FIRST)
    with worker:
        connect()
        worker.wait_for(lambda: len(pipe.received()) >= len(FIRST), "the first lines")
        worker.wait_for(lambda: pipe.committed() >= len(FIRST), "the first commit of the sink")
        after_first_run = pipe.received()
        end()
    pipe.append(SECOND)
    with worker:
        whole = len(FIRST + SECOND)
        worker.wait_for(lambda: len(pipe.received()) >= whole, "all lines")
        worker.wait_for(lambda: pipe.committed() >= whole, "the last commit of the sink")
        groups = pipe.groups()
        worker.stop()
    lines, end_offset = pipe.read()
    return Outcome(
        after_first_run=after_first_run,
        at_the_end=pipe.received(),
        in_the_topic=lines,
        end_offset=end_offset,
        committed=pipe.committed(),
        groups=groups,
        policies={topic: pipe.policy(topic) for topic in topics},
    )


def _connect(worker: App) -> None:
    """Creates the two connectors with the worker's REST API."""
    worker.wait_for(lambda: any(READY in line for line in worker.printed()), READY)
    [address] = ADDRESS.findall("\n".join(worker.printed()))
    with closing(HTTPConnection(address, timeout=60)) as service:
        for connector in (SOURCE, SINK):
            service.request(
                "PUT",
                f"/connectors/{connector['name']}/config",
                json.dumps(connector),
                {"Content-Type": "application/json"},
            )
            response = service.getresponse()
            body = response.read()
            assert response.status == 201, body


@pytest.fixture(scope="session")
def kafka_apps() -> KafkaApps:
    try:
        return KafkaApps.find()
    except MissingPartError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def standalone(kafka_apps: KafkaApps, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return once_per_run(tmp_path_factory, "connect-standalone", _standalone)


@pytest.fixture(scope="session")
def distributed(kafka_apps: KafkaApps, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return once_per_run(tmp_path_factory, "connect-distributed", _distributed)


def test_standalone_copies_a_file(standalone: Outcome) -> None:
    """C3: the second run resumes at the first run's source and sink positions."""
    assert standalone.after_first_run == FIRST
    assert standalone.at_the_end == standalone.in_the_topic == FIRST + SECOND
    assert standalone.committed == standalone.end_offset == len(FIRST + SECOND)


def test_a_sink_has_a_consumer_group(standalone: Outcome) -> None:
    """C2."""
    assert standalone.groups == {SINK_GROUP: A_SINK}


def test_distributed_copies_a_file_exactly_once(distributed: Outcome) -> None:
    """P4, C4: the first worker was killed; the second fences it and continues after its lines."""
    assert distributed.after_first_run == FIRST
    assert distributed.at_the_end == distributed.in_the_topic == FIRST + SECOND
    markers = distributed.end_offset - len(FIRST + SECOND)
    assert markers >= 2
    # A sink may commit the offset before or after the last marker.
    assert distributed.committed in (distributed.end_offset - 1, distributed.end_offset)


def test_distributed_workers_are_a_group(distributed: Outcome) -> None:
    """C2: with Connect's own protocol type."""
    assert distributed.groups == {SINK_GROUP: A_SINK, CLUSTER: ("connect", "Stable")}


def test_distributed_keeps_its_state_in_compacted_topics(distributed: Outcome) -> None:
    """M2, S5."""
    assert distributed.policies == {TOPIC: "delete", **dict.fromkeys(STORES, "compact")}
