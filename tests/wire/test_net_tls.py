"""TLS on real sockets: client certificates, invalid handshakes, slow clients."""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.errors import ProtocolError
from penstock.net.server.connection import Connection, PendingResponse
from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Listener, SocketServer
from penstock.net.tls.settings import TlsSettings
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.broker.net_server import RecordingService, client, echo, framed, run, serving
from tests.support.clock import ManualClock


class Parties(NamedTuple):
    authority: Identity
    broker: Identity
    alice: Identity
    stranger: Identity

    def settings(self, client_auth: str = "none", protocols: str = "") -> TlsSettings:
        return TlsSettings.from_config(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": self.broker.key_pem(),
                "ssl.keystore.certificate.chain": self.broker.certificate_pem,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.authority.certificate_pem,
                "ssl.client.auth": client_auth,
                "ssl.enabled.protocols": protocols,
            }
        )


@pytest.fixture(scope="module")
def parties() -> Parties:
    authority = make_identity(simple_name("authority"))
    return Parties(
        authority,
        make_identity(simple_name("broker"), authority),
        make_identity(simple_name("alice"), authority),
        make_identity(simple_name("stranger")),
    )


def client_context(
    parties: Parties, directory: Path, identity: Identity | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=parties.authority.certificate_pem)
    if identity is not None:
        path = directory / "client.pem"
        path.write_text(identity.certificate_pem + identity.key_pem())
        context.load_cert_chain(path)
    return context


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_requests_of_all_sizes_are_delivered(
    parties: Parties, tmp_path: Path, loop: str, protocol: str
) -> None:
    """X1"""
    requests = [bytes([n % 251]) * (n * n * 31 % 200_003) for n in range(100)]

    async def scenario() -> None:
        async with (
            serving(tls=parties.settings(protocols=protocol)) as (_, service, port),
            client(
                port, ssl=client_context(parties, tmp_path), server_hostname="localhost"
            ) as peer,
        ):
            sending = asyncio.create_task(peer.send(*requests))
            for request in requests:
                assert await peer.receive() == request
            await sending
            assert service.connections[0].peer.tls_subject is None
            assert peer.writer.get_extra_info("cipher")[1] == protocol

    run(scenario, loop)


@pytest.mark.parametrize(
    ("client_auth", "has_certificate", "subject"),
    [
        ("none", True, None),
        ("requested", False, None),
        ("requested", True, "CN=alice"),
        ("required", True, "CN=alice"),
    ],
)
def test_the_subject_of_the_client_certificate(
    parties: Parties, tmp_path: Path, client_auth: str, has_certificate: bool, subject: str | None
) -> None:
    """X2"""

    async def scenario() -> None:
        context = client_context(parties, tmp_path, parties.alice if has_certificate else None)
        async with (
            serving(tls=parties.settings(client_auth)) as (_, service, port),
            client(port, ssl=context, server_hostname="localhost") as peer,
        ):
            assert await peer.request(b"x") == b"x"
            assert service.connections[0].peer.tls_subject == subject

    run(scenario)


@pytest.mark.parametrize("stranger", [False, True])
def test_a_client_without_a_valid_certificate_is_rejected(
    parties: Parties, tmp_path: Path, stranger: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """E3"""

    async def scenario() -> None:
        context = client_context(parties, tmp_path, parties.stranger if stranger else None)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with serving(tls=parties.settings("required")) as (server, service, port):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                async with client(port, ssl=context, server_hostname="localhost"):
                    pass
            assert (service.connections, server.admission.total) == ([], 0)

    with caplog.at_level(logging.WARNING, "penstock.net"):
        run(scenario)
    assert "TLS handshake failed" in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        framed(b"\0\x12\0\0\0\0\0\1\xff\xff"),
        b"GET / HTTP/1.0\r\n\r\n",
        bytes(range(256)) * 20,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\x40\x00" + bytes(0x4000),
    ],
    ids=["kafka", "http", "noise", "short hello", "zeros"],
)
def test_garbage_on_a_tls_listener_affects_only_its_connection(
    parties: Parties, tmp_path: Path, data: bytes
) -> None:
    async def scenario() -> None:
        async with (
            serving(tls=parties.settings()) as (server, service, port),
            client(
                port, ssl=client_context(parties, tmp_path), server_hostname="localhost"
            ) as good,
        ):
            assert await good.request(b"x") == b"x"
            async with client(port) as bad:
                await bad.send_raw(data)
                await bad.reader.read()
            assert await good.request(b"y") == b"y"
            assert (len(service.connections), server.admission.total) == (1, 1)

    run(scenario)


def test_an_unfinished_handshake_is_closed(parties: Parties) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        limits = Limits(login_ms=500)
        async with serving(tls=parties.settings(), limits=limits, clock=clock) as running:
            async with client(running.port) as silent:
                await silent.send_raw(b"\x16\x03\x01")
                while not running.server.connections:
                    await asyncio.sleep(0)
                clock.advance(501)
                running.server.sweep()
                assert await silent.at_end()
            assert running.service.reasons == []

    run(scenario)


def test_an_invalid_request_after_the_handshake_closes_the_connection(
    parties: Parties, tmp_path: Path
) -> None:
    async def scenario() -> None:
        def refuse(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            raise ProtocolError("no request")

        service = RecordingService(refuse)
        async with (
            serving(service, tls=parties.settings()) as (_, _, port),
            client(
                port, ssl=client_context(parties, tmp_path), server_hostname="localhost"
            ) as peer,
        ):
            await peer.send(b"x")
            assert await peer.at_end()
            assert service.reasons == ["not a valid request: no request"]

    run(scenario)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_requests_buffered_in_the_tls_engine_are_delivered(
    parties: Parties, tmp_path: Path, loop: str
) -> None:
    """After the hold, no further byte arrives that would wake the connection."""

    async def scenario() -> None:
        def hold(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            connection.hold()
            asyncio.get_running_loop().call_soon(connection.release)
            echo(connection, frame, response)

        requests = [b"%d" % n + bytes(9_000) for n in range(30)]
        async with (
            serving(RecordingService(hold), tls=parties.settings()) as (_, _, port),
            client(
                port, ssl=client_context(parties, tmp_path), server_hostname="localhost"
            ) as peer,
        ):
            await peer.send(*requests)
            assert [await peer.receive() for _ in requests] == requests

    run(scenario, loop)


def test_a_client_that_never_reads_uses_bounded_memory(parties: Parties, tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = Limits(max_unsent=100_000, send_buffer=50_000, receive_buffer=50_000)
        service = RecordingService(lambda c, f, response: response.send([framed(bytes(10_000))]))
        async with (
            serving(service, limits, tls=parties.settings()) as (server, _, port),
            client(
                port, ssl=client_context(parties, tmp_path), server_hostname="localhost", limit=1024
            ) as slow_client,
        ):
            slow_client.writer.write(framed(bytes(100)) * 20_000)
            frame_count, quiet = -1, 0
            while quiet < 200:
                quiet = quiet + 1 if len(service.frames) == frame_count else 0
                frame_count = len(service.frames)
                await asyncio.sleep(0)
            assert 0 < frame_count < 20_000
            assert server.connections[0].send_queue.unsent <= 110_000
            slow_client.writer.transport.abort()

    run(scenario)


def test_the_last_response_is_delivered_before_the_close(parties: Parties, tmp_path: Path) -> None:
    """E3"""

    async def scenario() -> None:
        def refuse(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            response.send([framed(b"authentication failed")])
            connection.close_after_responses("authentication failed")

        service = RecordingService(refuse)
        async with serving(service, tls=parties.settings()) as (_, _, port):
            async with client(
                port, ssl=client_context(parties, tmp_path), server_hostname="localhost"
            ) as peer:
                await peer.send(b"login", *[bytes(1000)] * 100)
                assert await peer.receive() == b"authentication failed"
                assert await peer.at_end()
            await service.until(lambda: service.reasons == ["authentication failed"])

    run(scenario)


@pytest.mark.parametrize("secure", [True, False])
def test_a_slow_client_gets_the_whole_last_response(
    parties: Parties, tmp_path: Path, secure: bool
) -> None:
    """The connection is closed only after all data, including encrypted data, has been sent."""
    payload = bytes(range(256)) * 4_000

    async def scenario() -> None:
        def last(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            response.send([framed(payload)])
            connection.close_after_responses("last")

        service = RecordingService(last)
        limits = Limits(send_buffer=20_000)
        settings = parties.settings() if secure else None
        context = client_context(parties, tmp_path) if secure else None
        name = "localhost" if secure else None
        async with serving(service, limits, tls=settings) as (_, _, port):
            async with client(port, ssl=context, server_hostname=name, limit=1024) as slow:
                await slow.send(b"x")
                await service.until(lambda: len(service.frames) == 1)
                for _ in range(50):
                    await asyncio.sleep(0)
                assert await slow.receive() == payload
                assert await slow.at_end()
            await service.until(lambda: service.reasons == ["last"])

    run(scenario)


def test_a_new_certificate_serves_new_connections(parties: Parties, tmp_path: Path) -> None:
    async def scenario() -> None:
        server = SocketServer(RecordingService())
        (address,) = await server.start([Listener("SSL", "127.0.0.1", 0, parties.settings())])
        context = client_context(parties, tmp_path)
        async with client(address.port, ssl=context, server_hostname="localhost") as old:
            first = old.writer.get_extra_info("peercert")["serialNumber"]
            renewed = parties._replace(
                broker=make_identity(simple_name("broker"), parties.authority)
            )
            assert not server.reload_tls("SSL")
            assert server.reload_tls("SSL", renewed.settings())
            async with client(address.port, ssl=context, server_hostname="localhost") as new:
                assert new.writer.get_extra_info("peercert")["serialNumber"] != first
                assert await new.request(b"new") == b"new"
            assert await old.request(b"old") == b"old"
        await server.close(0)

    run(scenario)
