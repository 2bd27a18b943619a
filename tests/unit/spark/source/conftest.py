"""A broker for a module, and records in it."""

from collections.abc import Iterator

import pytest

from penstock.spark.source.clients import close_clients
from penstock.testing import Broker
from tests.support.spark.topics import Topics


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module", autouse=True)
def _no_clients_left() -> Iterator[None]:
    """Closes the clients that readers keep for the next task."""
    yield
    close_clients()


@pytest.fixture
def topics(broker: Broker) -> Iterator[Topics]:
    with Topics(broker.bootstrap_servers) as topics:
        yield topics
