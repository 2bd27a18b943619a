"""Errors of a socket end its own connection: others are served, and nothing of it is kept."""

import asyncio
import errno
from contextlib import suppress

import pytest

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from tests.support.faults.fault_network import SOCKET_ERRORS, SocketFault
from tests.support.faults.simulated_broker import Machine, SimulatedBroker
from tests.support.protocol.requests import batch_of

ORDERS = TopicPartition("orders", 0)
CASES = [(operation, error) for operation, errors in SOCKET_ERRORS.items() for error in errors]


@pytest.mark.parametrize(
    ("operation", "error"), CASES, ids=lambda value: errno.errorcode.get(value, value)
)
def test_an_error_ends_one_connection(operation: str, error: int) -> None:
    machine = Machine(seed=1, has_network=True)

    async def work(broker: SimulatedBroker) -> None:
        assert machine.network is not None
        spared = broker.connect(is_spared=True)
        assert await broker.create_topic("orders") == 0
        assert (await broker.produce("orders", batch_of(b"first" * 100))).error_code == 0
        machine.network.plan(SocketFault(0, operation, error))
        for _ in range(20):
            with suppress(KafkaError):
                await broker.fetch(ORDERS, 0)
                await broker.produce("orders", batch_of(b"more"))
        broker.disconnect()
        await asyncio.sleep(5)
        assert not spared.is_broken
        assert machine.network.open_connections == 1
        spared.close()
        await asyncio.sleep(5)
        broker.app.check_nothing_is_held()
        assert (await broker.fetch(ORDERS, 0)).error_code == 0
        assert machine.network.faults_hit or operation == "shutdown"

    machine.run(work)


async def fetch_often(broker: SimulatedBroker) -> None:
    """Fetches until sendfile is used: small ranges in the page cache are copied."""
    for _ in range(20):
        await broker.fetch(ORDERS, 0)


def test_a_disk_error_of_sendfile_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(seed=1, has_network=True)

    async def work(broker: SimulatedBroker) -> None:
        assert machine.network is not None
        assert await broker.create_topic("orders") == 0
        assert (await broker.produce("orders", batch_of(b"first"))).error_code == 0
        machine.network.plan(SocketFault(0, "sendfile", errno.EIO))
        with pytest.raises(KafkaError):
            await fetch_often(broker)
        assert (await broker.fetch(ORDERS, 0)).error_code == 0

    machine.run(work)
    assert "cannot read the log: Input/output error; check its disk" in caplog.text
