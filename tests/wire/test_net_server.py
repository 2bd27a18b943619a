"""The server on real sockets: pipelining, back-pressure, hostile and silent clients, limits."""

import asyncio
import errno
import logging
import socket
import struct

import pytest

from penstock.core.errors import KafkaError, ProtocolError
from penstock.net.server.connection import Connection, PendingResponse
from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Listener, SocketServer
from tests.support.broker.net_server import (
    RecordingService,
    client,
    echo,
    framed,
    run,
    serving,
)
from tests.support.clock import ManualClock

both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


@both_loops
def test_pipelined_requests_get_responses_in_order(loop: str) -> None:
    requests = [bytes([n % 251]) * (n * n * 7 % 300_001) for n in range(150)]

    async def scenario() -> None:
        async with serving() as (_, service, port), client(port) as peer:
            sending = asyncio.create_task(peer.send(*requests))
            for request in requests:
                assert await peer.receive() == request
            await sending
            assert service.frames == requests

    run(scenario, loop)


@both_loops
def test_a_request_can_arrive_byte_by_byte(loop: str) -> None:
    async def scenario() -> None:
        async with serving() as (_, service, port), client(port) as peer:
            for byte in framed(b"hello") + framed(b""):
                await peer.send_raw(bytes([byte]))
                await asyncio.sleep(0)
            assert [await peer.receive(), await peer.receive()] == [b"hello", b""]
            assert service.frames == [b"hello", b""]

    run(scenario, loop)


@both_loops
def test_late_responses_are_sent_in_order(loop: str) -> None:
    async def scenario() -> None:
        responses: list[PendingResponse] = []
        service = RecordingService(lambda connection, frame, response: responses.append(response))
        async with serving(service) as (_, _, port), client(port) as peer:
            await peer.send(b"0", b"1", b"2", b"3")
            await service.until(lambda: len(responses) == 4)
            for number in (3, 1, 0):
                responses[number].send([framed(b"response %d" % number)])
            assert [await peer.receive() for _ in range(2)] == [b"response 0", b"response 1"]
            responses[2].skip()
            assert await peer.receive() == b"response 3"

    run(scenario, loop)


@both_loops
def test_a_held_connection_continues_after_its_release(loop: str) -> None:
    """More data arrives while it is held, so that reading must stop and start again."""

    async def scenario() -> None:
        def hold_first(
            connection: Connection, frame: memoryview, response: PendingResponse
        ) -> None:
            if len(service.frames) == 1:
                connection.hold()
            echo(connection, frame, response)

        service = RecordingService(hold_first)
        async with (
            serving(service) as (_, _, port),
            client(port) as peer,
            client(port) as second,
        ):
            assert await peer.request(b"first") == b"first"
            await peer.send(b"second", b"third")
            assert await second.request(b"other") == b"other"
            assert await second.request(b"other") == b"other"
            assert service.frames == [b"first", b"other", b"other"]
            service.connections[0].release()
            assert [await peer.receive(), await peer.receive()] == [b"second", b"third"]
            assert await peer.request(b"fourth") == b"fourth"

    run(scenario, loop)


def test_the_disconnect_of_a_held_client_is_noticed() -> None:
    async def scenario() -> None:
        service = RecordingService(lambda connection, frame, response: connection.hold())
        async with serving(service) as (_, _, port):
            async with client(port) as peer:
                await peer.send(b"join")
                await service.until(lambda: service.frames == [b"join"])
            await service.until(lambda: service.reasons == ["closed by the client"])

    run(scenario)


@both_loops
def test_a_throttled_connection_is_read_later(loop: str) -> None:
    """X4"""

    async def scenario() -> None:
        def throttle(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            connection.throttle(40)
            echo(connection, frame, response)

        async with serving(RecordingService(throttle)) as (_, _, port), client(port) as peer:
            started = asyncio.get_running_loop().time()
            for _ in range(3):
                assert await peer.request(b"x") == b"x"
            assert asyncio.get_running_loop().time() - started >= 0.079

    run(scenario, loop)


@both_loops
def test_a_client_that_never_reads_uses_bounded_memory(loop: str) -> None:
    """The server stops reading from it, and serves others."""

    async def scenario() -> None:
        def respond(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            response.send([framed(bytes(10_000))])

        limits = Limits(max_unsent=100_000, send_buffer=50_000, receive_buffer=50_000)
        service = RecordingService(respond)
        async with serving(service, limits) as (server, _, port):
            with socket.create_connection(("127.0.0.1", port)) as deaf:
                deaf.setblocking(False)
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
                await send_until_stuck(deaf, framed(bytes(100)) * 100)
                (connection,) = server.connections
                assert 0 < connection.send_queue.unsent <= 110_000
                assert connection.queued <= 256 * 1024 // 104
                delivered = len(service.frames)
                service.respond = echo
                async with client(port) as second:
                    assert await second.request(b"fine") == b"fine"
                assert len(service.frames) == delivered + 1
            await service.until(lambda: len(service.reasons) == 2)

    run(scenario, loop)


async def send_until_stuck(sock: socket.socket, data: bytes) -> None:
    """Sends until the server has not read anything for many iterations of the loop."""
    turns_without = 0
    while turns_without < 200:
        try:
            sock.send(data)
            turns_without = 0
        except BlockingIOError:
            turns_without += 1
        await asyncio.sleep(0)


@both_loops
def test_a_client_that_reads_late_gets_all_responses(loop: str) -> None:
    async def scenario() -> None:
        limits = Limits(max_unsent=20_000, send_buffer=10_000)
        count = 400
        async with (
            serving(RecordingService(), limits) as (_, _, port),
            client(port, limit=2**12) as peer,
        ):
            requests = [bytes([n % 256]) * 5_000 for n in range(count)]
            sending = asyncio.create_task(peer.send(*requests))
            for request in requests:
                assert await peer.receive() == request
            await sending

    run(scenario, loop)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff", "claims -1 bytes"),
        (b"\x7f\xff\xff\xff", "claims 2147483647 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak Kafka's protocol"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "another security.protocol"),
    ],
)
def test_an_invalid_length_closes_only_its_connection(data: bytes, reason: str) -> None:
    async def scenario() -> None:
        async with serving() as (_, service, port), client(port) as good, client(port) as bad:
            await bad.send_raw(data)
            assert await bad.at_end()
            await service.until(lambda: len(service.reasons) == 1)
            assert reason in service.reasons[0]
            assert await good.request(b"fine") == b"fine"

    run(scenario)


def test_an_incomplete_request_is_not_delivered() -> None:
    async def scenario() -> None:
        async with serving() as (_, service, port):
            async with client(port) as peer:
                await peer.send_raw(framed(bytes(100_000))[:50_000])
            await service.until(lambda: len(service.reasons) == 1)
            assert "in the middle of a request" in service.reasons[0]
            assert service.frames == []

    run(scenario)


@pytest.mark.parametrize("error", [ProtocolError("bad bytes"), ValueError("a bug")])
def test_an_exception_closes_only_its_connection(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        def fail(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            if bytes(frame) == b"bad":
                raise error
            echo(connection, frame, response)

        async with (
            serving(RecordingService(fail)) as (_, service, port),
            client(port) as good,
            client(port) as bad,
        ):
            await bad.send(b"bad", b"never seen")
            assert await bad.at_end()
            assert await good.request(b"fine") == b"fine"
            assert service.frames == [b"bad", b"fine"]

    with caplog.at_level(logging.WARNING, "penstock.net"):
        run(scenario)
    tracebacks = [record for record in caplog.records if record.exc_info]
    if isinstance(error, ProtocolError):
        assert ["bad bytes" in record.getMessage() for record in caplog.records] == [True]
    else:
        assert [record.exc_info[1] for record in tracebacks if record.exc_info] == [error]
    assert all(record.__dict__["peer_host"] == "127.0.0.1" for record in caplog.records)


def test_a_client_that_sends_too_slowly_is_closed_as_idle() -> None:
    """Only whole requests count as activity."""

    async def scenario() -> None:
        clock = ManualClock()
        limits = Limits(idle_ms=1000)
        async with (
            serving(limits=limits, clock=clock) as (server, service, port),
            client(port) as peer,
        ):
            assert await peer.request(b"first") == b"first"
            server.sweep()
            reader = service.connections[0].reader
            for count, byte in enumerate(b"\0\0\0\x09ab", 1):
                assert service.reasons == []
                await peer.send_raw(bytes([byte]))
                while reader.allocated < count:
                    await asyncio.sleep(0)
                clock.advance(200)
                server.sweep()
            (reason,) = service.reasons
            assert "connections.max.idle.ms=1000" in reason

    run(scenario)


def test_a_client_that_sends_requests_is_not_idle() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        limits = Limits(idle_ms=1000)
        async with (
            serving(limits=limits, clock=clock) as (server, service, port),
            client(port) as peer,
        ):
            for _ in range(5):
                assert await peer.request(b"x") == b"x"
                server.sweep()
                clock.advance(900)
                server.sweep()
            assert service.reasons == []

    run(scenario)


def test_a_client_in_a_long_poll_is_not_idle() -> None:
    """C1"""

    async def scenario() -> None:
        clock = ManualClock()
        responses: list[PendingResponse] = []
        service = RecordingService(lambda connection, frame, response: responses.append(response))
        async with (
            serving(service, Limits(idle_ms=1000), clock=clock) as (server, _, port),
            client(port) as peer,
        ):
            await peer.send(b"fetch")
            await service.until(lambda: len(responses) == 1)
            for _ in range(5):
                clock.advance(2000)
                server.sweep()
            responses[0].send([framed(b"at last")])
            assert await peer.receive() == b"at last"
            server.sweep()
            clock.advance(1001)
            server.sweep()
            assert await peer.at_end()

    run(scenario)


def test_a_half_open_client_that_does_not_read_is_closed() -> None:
    """The machine of the client is down, so responses stay in the socket buffer."""

    async def scenario() -> None:
        clock = ManualClock()
        limits = Limits(idle_ms=1000, send_buffer=10_000)
        service = RecordingService(
            lambda c, f, response: response.send([framed(bytes(10_000_000))])
        )
        async with (
            serving(service, limits, clock=clock) as (server, _, port),
            client(port, limit=1024) as peer,
        ):
            await peer.send(b"a", b"b")
            await service.until(lambda: len(service.frames) >= 1)
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(20):
                await asyncio.sleep(0.001)
            server.sweep()
            clock.advance(1001)
            server.sweep()
            assert len(service.reasons) == 1

    run(scenario)


def test_a_client_that_does_not_log_in_is_closed() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        service = RecordingService()
        service.log_in = False
        limits = Limits(login_ms=500, max_frame_before_login=10)
        async with (
            serving(service, limits, clock=clock) as (server, _, port),
            client(port) as peer,
            client(port) as second,
        ):
            await second.send(bytes(11))
            assert await second.at_end()
            assert await peer.request(b"hello") == b"hello"
            clock.advance(501)
            server.sweep()
            assert await peer.at_end()
            assert "not logged in" in service.reasons[1]

    run(scenario)


def test_connections_above_the_limits_are_logged_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        limits = Limits(max_connections_per_ip=2)
        async with (
            serving(limits=limits) as (server, service, port),
            client(port) as first,
            client(port) as second,
        ):
            assert await first.request(b"1") == b"1"
            assert await second.request(b"2") == b"2"
            for _ in range(50):
                async with client(port) as refused:
                    assert await refused.at_end()
            assert (server.admission.total, server.admission.by_ip) == (2, {"127.0.0.1": 2})
            limits.per_ip_overrides = {"127.0.0.1": 3}
            async with client(port) as third:
                assert await third.request(b"3") == b"3"
            await service.until(lambda: len(service.reasons) == 1)
            assert server.admission.by_listener["TEST"] == 2

    with caplog.at_level(logging.WARNING, "penstock.net"):
        run(scenario)
    assert 1 <= len(caplog.records) <= 5
    assert "max.connections.per.ip=2" in caplog.records[0].getMessage()


def test_running_out_of_descriptors_pauses_accepting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    accept = socket.socket.accept

    def failing(self: socket.socket) -> tuple[socket.socket, object]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    async def scenario() -> None:
        async with serving() as (_, _, port), client(port) as peer:
            monkeypatch.setattr(socket.socket, "accept", failing)
            async with client(port) as late:
                assert await late.request(b"x") == b"x"
            assert await peer.request(b"y") == b"y"
            assert calls <= 4

    with caplog.at_level(logging.WARNING, "penstock.net"):
        monkeypatch.setattr("penstock.net.server.acceptor._ACCEPT_PAUSE_S", 0.05)
        run(scenario)
    assert "ulimit -n" in caplog.text


@both_loops
def test_connections_beyond_the_descriptors_are_closed_at_once(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """X5: the others are reserved for files."""

    async def scenario() -> None:
        async with (
            serving(limits=Limits(max_sockets=2)) as (server, _, port),
            client(port) as first,
        ):
            async with client(port) as second:
                assert await second.request(b"x") == b"x"
                for _ in range(20):
                    async with client(port) as refused:
                        assert await refused.at_end()
                assert await first.request(b"y") == b"y"
            while server.admission.total > 1:
                await asyncio.sleep(0.01)
            async with client(port) as late:
                assert await late.request(b"z") == b"z"
            assert server.admission.refused_sockets == 20

    with caplog.at_level(logging.WARNING, "penstock.net"):
        run(scenario, loop)
    assert 1 <= len(caplog.records) <= 5
    assert "LimitNOFILE=" in caplog.records[0].getMessage()


@both_loops
def test_closing_sends_pending_responses(loop: str) -> None:
    async def scenario() -> None:
        responses: list[PendingResponse] = []
        service = RecordingService(lambda connection, frame, response: responses.append(response))
        async with (
            serving(service) as (server, _, port),
            client(port) as busy,
            client(port) as idle,
        ):
            await busy.send(b"produce")
            await service.until(lambda: len(responses) == 1 and len(service.connections) == 2)
            closing = asyncio.create_task(server.close(10))
            assert await idle.at_end()
            responses[0].send([framed(b"done")])
            assert await busy.receive() == b"done"
            assert await busy.at_end()
            busy.writer.close()
            await closing
            assert server.admission.total == 0
            with pytest.raises(OSError, match=r"refused|Connect call failed"):
                await asyncio.open_connection("127.0.0.1", port)

    run(scenario, loop)


def test_the_last_response_is_delivered_although_more_was_sent() -> None:
    """E3: a rejected login gets a response and is closed, even if the client has sent more."""

    async def scenario() -> None:
        def refuse(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            response.send([framed(b"authentication failed")])
            connection.close_after_responses("authentication failed")

        async with serving(RecordingService(refuse)) as (_, service, port):
            async with client(port) as peer:
                await peer.send(b"login", *[bytes(1000)] * 100)
                assert await peer.receive() == b"authentication failed"
                assert await peer.at_end()
            await service.until(lambda: service.reasons == ["authentication failed"])
            assert service.frames == [b"login"]

    run(scenario)


def test_the_error_of_an_address_in_use_has_the_setting() -> None:
    async def scenario() -> None:
        async with serving() as (_, _, port):
            second = SocketServer(RecordingService())
            free = Listener("FIRST", "127.0.0.1", 0)
            with pytest.raises(KafkaError, match=f"listener PLAIN on 127.0.0.1:{port}.*in use"):
                await second.start([free, Listener("PLAIN", "127.0.0.1", port)])
            with pytest.raises(KafkaError, match=r"does not have that address.*advertised"):
                await second.start([Listener("PLAIN", "192.0.2.1", 0)])
            with pytest.raises(KafkaError, match="host cannot be resolved"):
                await second.start([Listener("PLAIN", "no-such-host.invalid", 0)])
            await second.close(0)

    run(scenario)


def test_ipv4_clients_of_a_dual_stack_listener_have_ipv4_addresses() -> None:
    async def scenario() -> None:
        service = RecordingService()
        server = SocketServer(service)
        (address,) = await server.start([Listener("ALL", "", 0)])
        async with client(address.port) as peer:
            assert await peer.request(b"x") == b"x"
            assert service.connections[0].peer.host == "127.0.0.1"
            assert service.connections[0].peer.listener == "ALL"
        await server.close(0)

    run(scenario)


def test_many_pipelined_requests_do_not_delay_others() -> None:
    """The request of a second connection is handled long before the many of the first."""

    async def scenario() -> None:
        async with serving() as (_, service, port), client(port) as flood, client(port) as second:
            assert await flood.request(b"x") == b"x"
            assert await second.request(b"x") == b"x"
            flood.writer.write(framed(b"f") * 20_000)
            second.writer.write(framed(b"other"))
            assert await second.receive() == b"other"
            assert service.frames.index(b"other") < 15_000
            for _ in range(20_000):
                assert await flood.receive() == b"f"

    run(scenario)


def test_a_connection_reset_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving() as (_, service, port):
            with socket.create_connection(("127.0.0.1", port)) as peer:
                await service.until(lambda: len(service.connections) == 1)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await service.until(lambda: len(service.reasons) == 1)
            assert "the connection broke" in service.reasons[0]

    with caplog.at_level(logging.INFO, "penstock.net"):
        run(scenario)
    assert caplog.records == []
