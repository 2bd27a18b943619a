"""Brokers of ours for Kafka's command-line tools, and the JVM that runs the tools."""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.broker.process import PenstockBroker, start_broker
from tests.support.kafka.broker import KafkaParts
from tests.support.kafka.tools import KafkaTools, Shell

_numbers = count(1)


@pytest.fixture(scope="session")
def tools(kafka_parts: KafkaParts) -> Iterator[KafkaTools]:
    with KafkaTools(kafka_parts) as running:
        yield running


@pytest.fixture(scope="session")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two directories of `log.dirs`."""
    directory = tmp_path_factory.mktemp("log-dirs")
    return directory / "one", directory / "two"


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory, log_dirs: tuple[Path, Path]
) -> Iterator[PenstockBroker]:
    """A broker without authentication, with the id 1."""
    settings = {
        "node.id": "1",
        "log.dirs": ",".join(map(str, log_dirs)),
        "num.partitions": "2",
        "offsets.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",  # by default a group waits 3 s
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",  # how often changes arrive
    }
    with start_broker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture(scope="session")
def shell(tools: KafkaTools, broker: PenstockBroker) -> Shell:
    return Shell(tools, broker.bootstrap)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a topic, group or user that no other test uses."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "-", request.node.name.removeprefix("test_"))
    return f"{plain.strip('-')}-{next(_numbers)}"
