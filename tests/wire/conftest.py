"""Fixtures of tests over the wire: a broker per module, and a connection to it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    """The settings of the broker; a module may override them."""
    return {}


@pytest.fixture(scope="module")
def broker_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the broker; a module may override it."""
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(broker_directory: Path, settings: Mapping[str, str]) -> Iterator[RunningBroker]:
    """A broker for all tests of the module, which must not log an unexpected exception."""
    with watching(), running_broker(broker_directory, settings) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect() as wire_client:
        yield wire_client
