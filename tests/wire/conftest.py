"""What tests over the wire share: a broker of the module's own, and a connection to it."""

from collections.abc import Iterator, Mapping

import pytest

from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    """The settings of the module's broker; a module may say others."""
    return {}


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str]
) -> Iterator[RunningBroker]:
    """A broker for all tests of the module; it must not meet anything that it does not expect."""
    with watching(), running_broker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect() as one:
        yield one
