"""X5: clients of `metrics.port`, slow, giant, many or malformed, cost the broker nothing."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from penstock.broker.metrics import endpoint
from penstock.net.http import server
from penstock.net.http.messages import HttpRequest, HttpResponse
from penstock.net.server.limits import Limits
from penstock.net.server.listening import listen
from tests.support.broker.in_process import RunningBroker, running_broker
from tests.support.metrics.scraping import Address, get, scrape
from tests.support.protocol.requests import make_topic, produce_values

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
TIMEOUT_S = 20.0


@pytest.fixture
def metered_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    monkeypatch.setattr(endpoint, "REUSE_S", 0.0)
    with running_broker(tmp_path, {"metrics.port": "0"}) as broker:
        yield broker


@pytest.fixture
def address(metered_broker: RunningBroker) -> Address:
    assert metered_broker.app.metrics_address is not None
    return metered_broker.app.metrics_address


@pytest.fixture
def canary(metered_broker: RunningBroker) -> Iterator[None]:
    """Another client, which must be served during the whole test, and after it."""
    stopping = threading.Event()
    produced = []

    def run() -> None:
        with metered_broker.connect() as client:
            make_topic(client, "canary")
            while not stopping.wait(0.005):
                produced.append(produce_values(client, "canary", b"tweet"))

    thread = threading.Thread(target=run)
    thread.start()
    yield
    served = len(produced)
    deadline = time.monotonic() + TIMEOUT_S
    while len(produced) <= served and time.monotonic() < deadline:
        time.sleep(0.01)
    stopping.set()
    thread.join()
    assert len(produced) > served


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients have little time for their requests."""
    with monkeypatch.context() as patch:
        for name in ("REQUEST_S", "IDLE_S"):
            patch.setattr(server, name, 0.3)
        yield


def connect(address: Address) -> socket.socket:
    return socket.create_connection(address, TIMEOUT_S)


def read_to_end(sock: socket.socket) -> bytes:
    """Returns what the server sends until it closes the connection, which it must."""
    received = b""
    with suppress(ConnectionError):
        while chunk := sock.recv(65536):
            received += chunk
    return received


@pytest.mark.usefixtures("canary", "short_times")
@pytest.mark.parametrize("sent", [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost"])
def test_a_client_that_does_not_send_its_request_is_closed(address: Address, sent: bytes) -> None:
    with connect(address) as slow:
        slow.sendall(sent)
        assert read_to_end(slow) == b""


@pytest.mark.usefixtures("canary", "short_times")
def test_a_client_that_sends_byte_after_byte_is_closed(address: Address) -> None:
    sent = 0
    with connect(address) as slow, suppress(ConnectionError):
        while sent < 1000:
            slow.sendall(b"x")
            sent += 1
            time.sleep(0.02)
    assert sent < 1000


@pytest.mark.usefixtures("canary", "short_times")
def test_an_idle_connection_is_closed(address: Address) -> None:
    with connect(address) as idle:
        idle.sendall(GET)
        assert read_to_end(idle).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.usefixtures("canary")
def test_a_giant_request_is_refused(address: Address) -> None:
    with connect(address) as giant:
        with suppress(ConnectionError):
            for _ in range(1000):
                giant.sendall(b"x" * 65536)
        response = read_to_end(giant)
    # The refusal is lost if the client was still sending.
    assert response == b"" or response.startswith(b"HTTP/1.1 431 ")
    assert scrape(address).value("penstock_metrics_http_refused_total") >= 1


@pytest.mark.usefixtures("canary")
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x00\x00\x14\x00\x12\x00\x03\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", b"405"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", b"413"),
        (b"GET /metrics HTTP/3\r\n\r\n", b"505"),
    ],
)
def test_a_malformed_request_is_refused(address: Address, sent: bytes, status: bytes) -> None:
    with connect(address) as malformed:
        malformed.sendall(sent)
        assert read_to_end(malformed).startswith(b"HTTP/1.1 " + status)


@pytest.mark.usefixtures("canary")
def test_of_many_connections_few_stay_open(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 60.0)
    with ExitStack() as stack:
        many = [stack.enter_context(connect(address)) for _ in range(3 * server.MAX_CONNECTIONS)]
        assert get(address, "/healthz").status == 200
        closed = 0
        for sock in many:
            sock.setblocking(False)
            try:
                closed += sock.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionError:
                closed += 1
        assert closed >= len(many) - server.MAX_CONNECTIONS


@pytest.mark.usefixtures("canary")
def test_pipelined_requests_are_served_slowly(
    metered_broker: RunningBroker, address: Address
) -> None:
    metrics = metered_broker.app.metrics
    assert metrics is not None
    begun = time.monotonic()
    with connect(address) as greedy:
        with suppress(TimeoutError):
            greedy.settimeout(0.3)
            greedy.sendall(GET * 100_000)
        served = metrics._server.requests
        seconds = time.monotonic() - begun
    assert served <= seconds / server.PAUSE_S + 1


class _Endless:
    """A server whose response does not fit into any socket buffer."""

    def __init__(self) -> None:
        self.body = bytes(64 * 1024 * 1024)
        self.server = server.HttpServer(self._respond)

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, self.body)


def test_a_client_that_does_not_read_is_closed_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "RESPONSE_S", 0.5)

    async def run() -> int:
        endless = _Endless()
        sock = await listen("127.0.0.1", 0, "test", Limits())
        endless.server.start(sock)
        reader, writer = await asyncio.open_connection(*sock.getsockname()[:2], limit=1024)
        writer.write(GET)
        unsent: list[int] = []
        while not unsent or endless.server._connections:
            await asyncio.sleep(0.05)
            for connection in endless.server._connections:
                if connection._transport is not None:
                    unsent.append(connection._transport.get_write_buffer_size())
        received = len(await reader.read())
        writer.close()
        await endless.server.close()
        assert received < len(endless.body)
        assert endless.server.refused == 1
        return max(unsent)

    assert asyncio.run(run()) <= 4 * server.PIECE_BYTES


def test_a_collector_that_fails_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Iterator[None]:
        yield
        raise RuntimeError("a bug")

    monkeypatch.setattr(endpoint, "collect_groups", fail)
    with running_broker(tmp_path, {"metrics.port": "0"}) as broker:
        assert broker.app.metrics_address is not None
        metrics = scrape(broker.app.metrics_address)
        assert metrics.value("penstock_metrics_failed_collectors_total") == 1
        assert metrics.value("kafka_server_kafkaserver_brokerstate") == 3
