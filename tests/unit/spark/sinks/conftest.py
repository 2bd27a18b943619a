"""A broker for a module, and topics of its own for each test."""

from collections.abc import Iterator

import pytest

from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic with one partition, so that all records are ordered."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)[
        :100
    ]
    broker.create_topic(name)
    return name
