"""The relay of `penstock.testing` in the test's own loop, where every turn can be counted."""

import asyncio
import socket

import pytest

from penstock.testing.addresses import Route
from penstock.testing.faults import Faults
from penstock.testing.relay import Relay

HOST = "127.0.0.1"
TURNS = 8
"""From a connection in the kernel to both of its ends at the relay, and a few more."""


class Echo(asyncio.Protocol):
    """A broker that answers with what it was asked."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


def free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        return int(taken.getsockname()[1])


async def heard(client: socket.socket) -> bytes:
    """What comes next: nothing is the end, by whatever way."""
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        return await asyncio.wait_for(loop.sock_recv(client, 100), 5)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("up", [True, False], ids=["broker up", "broker down"])
@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "cut"])
def test_nobody_is_left_waiting_by_a_cut_at_any_moment(refuses: bool, up: bool) -> None:
    """A client that connects just when all connections are reset either gets an answer, or the end
    of its connection: silence would cost it the whole of its timeout."""
    asyncio.run(cut_at_every_moment(refuses=refuses, up=up))


async def cut_at_every_moment(*, refuses: bool, up: bool) -> None:
    loop = asyncio.get_running_loop()
    broker_port, port = free_port(), free_port()
    broker = await loop.create_server(Echo, HOST, broker_port) if up else None
    relay = Relay([Route(HOST, port, HOST, broker_port, readable=False)])
    for turns in range(TURNS):
        await relay.set(Faults())
        # The kernel accepts it, without any turn of the loop.
        with socket.create_connection((HOST, port)) as client:
            client.sendall(b"request")
            for _ in range(turns):
                await asyncio.sleep(0)
            await (relay.set(Faults(refuses=True)) if refuses else relay.cut())
            assert await heard(client) in (b"", b"request"), f"after {turns} turns"
    await relay.close()
    if broker is not None:
        broker.close()
        await broker.wait_closed()
