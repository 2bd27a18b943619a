"""The pytest plugin: fixtures for a broker, for a cluster, and for a new topic per test.

See `docs/testing.md`. Every run of pytest imports this module, so the broker is only imported when
it is used.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from penstock.testing.broker import Broker
    from penstock.testing.cluster import Cluster

Scope = Literal["session", "package", "module", "class", "function"]
SCOPES = ("session", "package", "module", "class", "function")
_MARKER = (
    "kafka_topic(partitions=1, config=None, replicas=None): how the fixture kafka_topic creates "
    "its topic; names in config are Kafka's; replicas is for kafka_cluster only"
)
_NAME_LENGTH = 100
_BROKER = "kafka_broker"
_CLUSTER = "kafka_cluster"
_running = pytest.StashKey["list[Broker | Cluster]"]()
_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("penstock", "Kafka for tests (penstock)")
    for fixture in (_BROKER, _CLUSTER):
        text = f"the scope of the fixture {fixture}: " + ", ".join(SCOPES)
        option = f"--{fixture.replace('_', '-')}-scope"
        group.addoption(option, choices=SCOPES, default=None, help=text)
        parser.addini(f"{fixture}_scope", text, default="session")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    config.stash[_running] = []
    for fixture in (_BROKER, _CLUSTER):
        scope = _scope(fixture, config)
        if scope not in SCOPES:
            raise pytest.UsageError(f"{fixture}_scope is {scope}: write one of {', '.join(SCOPES)}")


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    """Returns the scope of `kafka_broker` or `kafka_cluster`, and of their settings."""
    fixture = fixture_name.removesuffix("_settings")
    scope = config.getoption(f"{fixture}_scope") or config.getini(f"{fixture}_scope")
    return cast("Scope", scope)


@pytest.fixture(scope=_scope)
def kafka_broker_settings() -> Mapping[str, str]:
    """The broker's settings, by Kafka's names: override it, in the scope of the broker."""
    return {}


@pytest.fixture(scope=_scope)
def kafka_broker(
    kafka_broker_settings: Mapping[str, str], pytestconfig: pytest.Config
) -> Iterator[Broker]:
    """A broker in its own process; clients connect to `kafka_broker.bootstrap_servers`.

    Its scope is set by --kafka-broker-scope. What a test does to it (stop, kill, faults) is undone
    after the test.
    """
    from penstock.testing.broker import Broker

    running = pytestconfig.stash[_running]
    with Broker(kafka_broker_settings) as broker:
        running.append(broker)
        try:
            yield broker
        finally:
            running.remove(broker)


@pytest.fixture(scope=_scope)
def kafka_cluster_settings() -> Mapping[str, str]:
    """The settings of all brokers of the cluster: override it, in the scope of the cluster."""
    return {}


@pytest.fixture(scope=_scope)
def kafka_cluster(
    kafka_cluster_settings: Mapping[str, str], pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    """Three brokers in processes of their own: see `kafka_cluster.bootstrap_servers`.

    Its scope is set by --kafka-cluster-scope. What a test does to it (kill, isolate, faults) is
    undone after the test.
    """
    from penstock.testing.cluster import Cluster

    running = pytestconfig.stash[_running]
    with Cluster(kafka_cluster_settings) as cluster:
        running.append(cluster)
        try:
            yield cluster
        finally:
            running.remove(cluster)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic for this test; the marker `kafka_topic` sets how it is created.

    It is created in the cluster if the test uses `kafka_cluster`, and in the broker if it uses
    `kafka_broker` or neither of them.
    """
    used = [name for name in (_BROKER, _CLUSTER) if name in request.fixturenames] or [_BROKER]
    homes: list[Broker | Cluster] = [request.getfixturevalue(name) for name in used]
    marker = request.node.get_closest_marker("kafka_topic")
    name = _topic_name(request.node.name)
    for home in homes:
        if marker is None:
            home.create_topic(name)
        else:
            home.create_topic(name, *marker.args, **marker.kwargs)
    yield name
    for home, fixture in zip(homes, used, strict=True):
        if _scope(fixture, request.config) == "function":
            continue  # it ends with the test, too
        if not home.is_running:
            home.heal()
        home.delete_topic(name, missing_ok=True)


def _topic_name(test: str) -> str:
    """Returns the test's name with the characters of topic names, and a number that is unique."""
    name = "".join(char if char.isascii() and char.isalnum() else "-" for char in test)
    return f"{name[:_NAME_LENGTH].strip('-')}-{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Undoes what the test has done to brokers that it shares with others."""
    try:
        return (yield)
    finally:
        for home in item.config.stash[_running]:
            home.heal()
