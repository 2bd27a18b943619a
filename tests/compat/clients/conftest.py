"""A broker of ours for real clients (or Kafka's: see `brokers`), and the clients."""

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from penstock.testing.addresses import Listener, Ports, Route
from penstock.testing.network import Network, open_network
from tests.support.broker import process
from tests.support.broker.process import PenstockBroker
from tests.support.kafka.broker import KafkaBroker, MissingPartError
from tests.support.kafka_clients import ALL
from tests.support.kafka_clients.brokers import chosen_broker
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.model import AdminClient, Client
from tests.support.kafka_clients.program import java_versions

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests with Java clients between the oldest and the newest version as long."""
    between = {f"java-{version}" for version in java_versions()[1:-1]}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            callspec = getattr(item, "callspec", None)
            if callspec is not None and not between.isdisjoint(
                value for value in callspec.params.values() if isinstance(value, str)
            ):
                item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def ports() -> Iterator[Ports]:
    ports = Ports()
    yield ports
    ports.close()


@pytest.fixture(scope="session")
def entrance(ports: Ports) -> Listener:
    """The listener that clients connect to."""
    return ports.reserve(Listener("PLAINTEXT", "127.0.0.1", 0))


@pytest.fixture(scope="session")
def inside(ports: Ports) -> Listener:
    """The listener of the broker under test, if it is Penstock."""
    return ports.reserve(Listener("PLAINTEXT", "127.0.0.1", 0))


@pytest.fixture(scope="session")
def broker_under_test(
    tmp_path_factory: pytest.TempPathFactory, entrance: Listener, inside: Listener
) -> Iterator[PenstockBroker | KafkaBroker]:
    with chosen_broker(tmp_path_factory.mktemp("broker"), entrance, inside) as broker:
        yield broker


@pytest.fixture(scope="session")
def network(
    broker_under_test: PenstockBroker | KafkaBroker,
    entrance: Listener,
    inside: Listener,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Network]:
    """The network between the broker and its clients."""
    port = broker_under_test.port if isinstance(broker_under_test, KafkaBroker) else inside.port
    route = Route(entrance.host, entrance.port, inside.host, port, readable=True)
    network = open_network([route], tmp_path_factory.mktemp("relay") / "relay.log")
    network.set_up(True)
    yield network
    network.close()


@pytest.fixture(scope="session")
def broker_that_creates_no_topics(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PenstockBroker]:
    settings = {"auto.create.topics.enable": "false"}
    with process.start_broker(tmp_path_factory.mktemp("strict"), settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(network: Network, entrance: Listener) -> str:
    return entrance.address


def _make(name: str) -> Client:
    try:
        return ALL[name]()
    except MissingPartError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session", params=list(ALL))
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Each client in turn. pytest runs the tests of one together, so it is started once."""
    with _make(request.param) as started_client:
        yield started_client


@pytest.fixture
def admin_client(client: Client) -> AdminClient:
    """Each client that manages topics, in turn."""
    assert isinstance(client, AdminClient)
    return client


@pytest.fixture(scope="session")
def witness() -> ConfluentClient:
    """The client that verifies the effects of the client under test."""
    return ConfluentClient()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic does not exist yet."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', request.node.name).strip('-')}-{next(_numbers)}"


@pytest.fixture
def new_topic(bootstrap: str, topic: str, witness: ConfluentClient) -> Callable[..., str]:
    """Creates the test's topic: `new_topic(partitions=2, **{"max.message.bytes": "1000"})`."""

    def make(partitions: int = 2, **configs: str) -> str:
        witness.create_topic(bootstrap, topic, partitions, configs)
        return topic

    return make
