"""The relay of `penstock.testing`, on the event loop of the test."""

import asyncio
import socket

import pytest

from penstock.testing.addresses import Route
from penstock.testing.faults import Faults
from penstock.testing.relay import Relay

HOST = "127.0.0.1"
ITERATIONS = 8
"""More than a new connection takes until both ends of its link are connected."""


class Echo(asyncio.Protocol):
    """A broker that sends back what it receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


def free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        return int(taken.getsockname()[1])


async def receive(client: socket.socket) -> bytes:
    """Returns the next bytes; none if the connection was closed or reset."""
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        return await asyncio.wait_for(loop.sock_recv(client, 100), 5)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("up", [True, False], ids=["broker up", "broker down"])
@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "cut"])
def test_a_cut_at_any_moment_leaves_no_client_waiting(refuses: bool, up: bool) -> None:
    """A client that connects during a cut gets a response or the end of its connection.

    Silence would cost it the whole of its timeout.
    """
    asyncio.run(cut_at_every_moment(refuses=refuses, up=up))


async def cut_at_every_moment(*, refuses: bool, up: bool) -> None:
    loop = asyncio.get_running_loop()
    broker_port, port = free_port(), free_port()
    broker = await loop.create_server(Echo, HOST, broker_port) if up else None
    relay = Relay([Route(HOST, port, HOST, broker_port, readable=False)])
    for iterations in range(ITERATIONS):
        await relay.set(Faults())
        # The kernel accepts it, without any iteration of the loop.
        with socket.create_connection((HOST, port)) as client:
            client.sendall(b"request")
            for _ in range(iterations):
                await asyncio.sleep(0)
            await (relay.set(Faults(refuses=True)) if refuses else relay.cut())
            assert await receive(client) in (b"", b"request"), f"after {iterations} iterations"
    await relay.close()
    if broker is not None:
        broker.close()
        await broker.wait_closed()
