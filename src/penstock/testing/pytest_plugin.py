"""The pytest plugin: fixtures for a broker, and for a new topic per test. See `docs/testing.md`.

Every run of pytest imports this module, so the broker is only imported when it is used.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from penstock.testing.broker import Broker

Scope = Literal["session", "package", "module", "class", "function"]
SCOPES = ("session", "package", "module", "class", "function")
_MARKER = (
    "kafka_topic(partitions=1, config=None): how the fixture kafka_topic creates its topic; names "
    "in config are Kafka's"
)
_NAME_LENGTH = 100
_brokers = pytest.StashKey["list[Broker]"]()
_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "the scope of the fixture kafka_broker: " + ", ".join(SCOPES)
    group = parser.getgroup("penstock", "Kafka for tests (penstock)")
    group.addoption("--kafka-broker-scope", choices=SCOPES, default=None, help=text)
    parser.addini("kafka_broker_scope", text, default="session")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    config.stash[_brokers] = []
    scope = _broker_scope("kafka_broker", config)
    if scope not in SCOPES:
        raise pytest.UsageError(f"kafka_broker_scope is {scope}: write one of {', '.join(SCOPES)}")


def _broker_scope(fixture_name: str, config: pytest.Config) -> Scope:
    scope = config.getoption("--kafka-broker-scope") or config.getini("kafka_broker_scope")
    return cast("Scope", scope)


@pytest.fixture(scope=_broker_scope)
def kafka_broker_settings() -> Mapping[str, str]:
    """The broker's settings, by Kafka's names: override it, in the scope of the broker."""
    return {}


@pytest.fixture(scope=_broker_scope)
def kafka_broker(
    kafka_broker_settings: Mapping[str, str], pytestconfig: pytest.Config
) -> Iterator[Broker]:
    """A broker in its own process; clients connect to `kafka_broker.bootstrap_servers`.

    Its scope is set by --kafka-broker-scope. What a test does to it (stop, kill, faults) is undone
    after the test.
    """
    from penstock.testing.broker import Broker

    brokers = pytestconfig.stash[_brokers]
    with Broker(kafka_broker_settings) as broker:
        brokers.append(broker)
        try:
            yield broker
        finally:
            brokers.remove(broker)


@pytest.fixture
def kafka_topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic for this test; the marker `kafka_topic` sets how it is created."""
    marker = request.node.get_closest_marker("kafka_topic")
    name = _topic_name(request.node.name)
    if marker is None:
        kafka_broker.create_topic(name)
    else:
        kafka_broker.create_topic(name, *marker.args, **marker.kwargs)
    yield name
    if kafka_broker.is_running:
        kafka_broker.delete_topic(name, missing_ok=True)


def _topic_name(test: str) -> str:
    """Returns the test's name with the characters of topic names, and a number that is unique."""
    name = "".join(char if char.isascii() and char.isalnum() else "-" for char in test)
    return f"{name[:_NAME_LENGTH].strip('-')}-{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Undoes what the test has done to a broker that it shares with others."""
    try:
        return (yield)
    finally:
        for broker in item.config.stash[_brokers]:
            broker.heal()
