"""Accepting connections on real sockets: limits, connection rates, host names."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Listener, SocketServer
from tests.support.broker.net_server import Client, RecordingService, client, run
from tests.support.clock import ManualClock

both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


class ScriptedGate:
    """A gate whose delays are set by the test."""

    def __init__(self) -> None:
        self.accept_delays_ms: list[int] = []
        self.close_delays_ms: list[int] = []
        self.calls: list[str] = []

    def accept_delay_ms(self, listener: str) -> int:
        self.calls.append(f"arrived {listener}")
        return self.accept_delays_ms.pop(0) if self.accept_delays_ms else 0

    def close_delay_ms(self, listener: str, ip: str) -> int:
        self.calls.append(f"entered {listener} {ip}")
        return self.close_delays_ms.pop(0) if self.close_delays_ms else 0


@contextlib.asynccontextmanager
async def two_listeners(
    limits: Limits, gate: ScriptedGate | None = None, clock: ManualClock | None = None
) -> AsyncIterator[tuple[SocketServer, RecordingService, int, int]]:
    """Runs a server with the listeners IN and OUT; yields their ports."""
    service = RecordingService()
    server = SocketServer(service, limits, clock=clock, throttle=gate)
    addresses = await server.start([Listener(name, "127.0.0.1", 0) for name in ("IN", "OUT")])
    try:
        yield server, service, addresses[0].port, addresses[1].port
    finally:
        await server.close(0)


async def send_several(peer: Client) -> None:
    """Sends enough requests for the server to have polled all its sockets."""
    for _ in range(5):
        assert await peer.request(b"turn") == b"turn"


@both_loops
def test_listeners_wait_at_max_connections(loop: str) -> None:
    async def scenario() -> None:
        limits = Limits(max_connections=2)
        async with (
            two_listeners(limits) as (server, _, inside, outside),
            client(inside) as first,
            client(outside) as second,
        ):
            await send_several(first)
            await send_several(second)
            async with client(inside) as third, client(outside) as fourth:
                await third.send(b"third")
                await fourth.send(b"fourth")
                await send_several(first)
                assert server.admission.total == 2
                second.writer.close()
                arrived = {
                    asyncio.create_task(third.receive()),
                    asyncio.create_task(fourth.receive()),
                }
                done, waiting = await asyncio.wait(arrived, return_when="FIRST_COMPLETED")
                assert len(done) == 1
                await send_several(first)
                assert server.admission.total == 2
                limits.max_connections = 3
                server.limits_changed()
                responses = {item.result() for item in done} | {await item for item in waiting}
                assert responses == {b"third", b"fourth"}

    run(scenario, loop)


def test_a_full_listener_does_not_delay_another(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        limits = Limits(max_connections_per_listener={"OUT": 1})
        async with (
            two_listeners(limits) as (server, _, inside, outside),
            client(outside) as first,
        ):
            await send_several(first)
            async with client(outside) as waiting, client(inside) as second_client:
                await waiting.send(b"x")
                await send_several(second_client)
                await send_several(first)
                assert server.admission.by_listener == {"OUT": 1, "IN": 1}
                first.writer.close()
                assert await waiting.receive() == b"x"

    with caplog.at_level(logging.WARNING, "penstock.net"):
        run(scenario)
    (line,) = caplog.messages
    assert "max.connections=1 of listener OUT is reached" in line


def test_the_protected_listener_replaces_the_connection_idle_the_longest() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        limits = Limits(max_connections=3, protected_listener="IN")
        async with (
            two_listeners(limits, clock=clock) as (server, service, inside, outside),
            client(inside) as broker,
            client(outside) as busy,
            client(outside) as idle,
        ):
            for peer in (broker, busy, idle):
                await send_several(peer)
                server.sweep()
                clock.advance(1000)
            await send_several(busy)
            async with client(inside) as second_broker:
                await send_several(second_broker)
                assert await idle.at_end()
                assert "this connection was idle for the longest time" in service.reasons[0]
                await send_several(busy)
                async with client(inside) as third:
                    await send_several(third)
                    assert await busy.at_end()
                    await send_several(broker)
                    assert server.admission.by_listener["IN"] == 3
                    # No other connection can be closed, but brokers are still accepted.
                    async with client(inside) as fourth:
                        await send_several(fourth)
                        assert server.admission.total == 4

    run(scenario)


def test_a_lower_limit_closes_the_connection_idle_the_longest() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        limits = Limits()
        async with (
            two_listeners(limits, clock=clock) as (server, _, inside, outside),
            client(inside) as first,
            client(outside) as second,
            client(outside) as third,
        ):
            for peer in (second, first, third):
                await send_several(peer)
                server.sweep()
                clock.advance(1000)
            limits.max_connections = 1
            server.sweep()
            assert await second.at_end()
            assert await first.at_end()
            await send_several(third)

    run(scenario)


@both_loops
def test_a_listener_waits_for_the_accept_delay(loop: str) -> None:
    """X4: applies to the connection above the rate; the next one stays in the queue."""

    async def scenario() -> None:
        gate = ScriptedGate()
        gate.accept_delays_ms = [0, 60]
        async with (
            two_listeners(Limits(), gate) as (server, _, inside, outside),
            client(inside) as first,
        ):
            await send_several(first)
            started = asyncio.get_running_loop().time()
            async with client(inside) as second, client(inside) as third:
                await third.send(b"third")
                await send_several(first)
                assert gate.calls[2:] == ["arrived IN"]
                async with client(outside) as second_client:
                    await send_several(second_client)
                assert await second.request(b"second") == b"second"
                assert asyncio.get_running_loop().time() - started >= 0.059
                assert await third.receive() == b"third"
                assert gate.calls.count("arrived IN") == 3
                assert server.admission.by_listener["IN"] == 3

    run(scenario, loop)


@both_loops
def test_a_connection_above_the_rate_is_closed_after_a_delay(loop: str) -> None:
    """X4: it gets no response, is not counted and does not delay others."""

    async def scenario() -> None:
        gate = ScriptedGate()
        gate.close_delays_ms = [60]
        async with (
            two_listeners(Limits(), gate) as (server, service, inside, _),
            client(inside) as rejected,
            client(inside) as second_client,
        ):
            started = asyncio.get_running_loop().time()
            await rejected.send(b"rejected")
            await send_several(second_client)
            assert server.admission.total == 1
            assert await rejected.at_end()
            assert asyncio.get_running_loop().time() - started >= 0.05
            assert b"rejected" not in service.frames

    run(scenario, loop)


def test_delayed_connections_are_closed_with_the_server() -> None:
    async def scenario() -> None:
        gate = ScriptedGate()
        gate.close_delays_ms, gate.accept_delays_ms = [60_000], [0, 60_000]
        async with (
            two_listeners(Limits(), gate) as (server, _, inside, _),
            client(inside) as rejected,
            client(inside) as waiting,
        ):
            while gate.calls != ["arrived IN", "entered IN 127.0.0.1", "arrived IN"]:
                await asyncio.sleep(0)
            server.stop_accepting()
            assert await rejected.at_end()
            assert await waiting.at_end()

    run(scenario)


def test_connections_are_limited_by_host_name(caplog: pytest.LogCaptureFixture) -> None:
    """The names are resolved before the first connection and after every change."""

    async def scenario() -> None:
        limits = Limits(per_ip_overrides={"localhost": 1, "no-such-host.invalid": 5})
        async with (
            two_listeners(limits) as (server, _, inside, _),
            client(inside) as first,
        ):
            await send_several(first)
            async with client(inside) as second:
                assert await second.at_end()
            limits.per_ip_overrides = {"localhost": 2, "10.0.0.1": 7}
            server.limits_changed()
            while server.admission.named_overrides != {"127.0.0.1": 2}:
                await asyncio.sleep(0)
            async with client(inside) as second:
                await send_several(second)

    with caplog.at_level(logging.WARNING, "penstock.net"):
        run(scenario)
    assert "the host no-such-host.invalid cannot be resolved" in caplog.messages[0]
