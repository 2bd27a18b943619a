"""A whole broker in the test's own process, on a thread, and a client that speaks raw requests.

with running_broker(tmp_path, {"num.partitions": "3"}) as broker, broker.connect() as client:
    response = client.request(MetadataRequest(), 9)
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from penstock.broker.app import App
from penstock.broker.broker import Broker
from penstock.broker.config.broker_config import BrokerConfig
from penstock.net.server.socket_server import Address
from penstock.protocol.api import api
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response, encode_request

T = TypeVar("T")
TIMEOUT_S = 60.0
STOP_S = 60.0
"""A busy disk may take long for the last flushes."""


class WireClient:
    """One connection. Several requests may be sent before their responses are read."""

    def __init__(self, address: tuple[str, int], client_id: str = "test") -> None:
        self.sock = socket.create_connection(address, TIMEOUT_S)
        self._client_id = client_id
        self._correlation_id = 0

    def send(self, request: Message, version: int) -> int:
        """Sends a request; returns its correlation id."""
        self._correlation_id += 1
        parts = encode_request(request, version, self._correlation_id, self._client_id)
        self.sock.sendall(b"".join(cast("list[bytes]", parts)))
        return self._correlation_id

    def receive(self, request: Message, version: int) -> Message:
        """Returns the next response, which must be that of `request`."""
        key = type(request).INFO.key
        assert key is not None
        _, response = decode_response(api(key).response, version, self.receive_frame())
        return response

    def request(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive(request, version)

    def receive_frame(self) -> bytes:
        """Returns the next frame without its length; ConnectionError if there is none."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            if not chunk:
                raise ConnectionResetError("the broker closed the connection")
            data += chunk
        return data

    def is_closed(self) -> bool:
        """Waits until the broker closes the connection; returns False if it sends data instead."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class RunningBroker:
    """A broker on its own thread. `call` and `wait` run functions on that thread."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop, addresses: list[Address]) -> None:
        self.app = app
        self.addresses = addresses
        self._loop = loop

    @property
    def address(self) -> tuple[str, int]:
        return self.addresses[0].host, self.addresses[0].port

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.addresses[0].host}:{self.addresses[0].port}"

    def connect(self, listener: str | None = None, *, client_id: str = "test") -> WireClient:
        for address in self.addresses:
            if listener in (None, address.listener):
                return WireClient((address.host, address.port), client_id)
        raise LookupError(f"no listener {listener}")

    def call(self, function: Callable[[Broker], T]) -> T:
        """Runs `function` on the thread of the broker."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(self.app.broker))
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                future.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return future.result(TIMEOUT_S)

    def wait(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the thread of the broker."""
        return asyncio.run_coroutine_threadsafe(work(self.app.broker), self._loop).result(TIMEOUT_S)


@contextmanager
def running_broker(
    directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[RunningBroker]:
    """Starts a broker with its data in `directory` on a free port; stops it at the end."""
    config = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory / "data"),
            **(settings or {}),
        }
    )
    started: Future[RunningBroker] = Future()
    stopping = asyncio.Event()

    async def serve() -> None:
        try:
            app = App(config)
            addresses = await app.start()
        except BaseException as error:  # noqa: BLE001 - raised in the test
            started.set_exception(error)
            return
        started.set_result(RunningBroker(app, asyncio.get_running_loop(), addresses))
        await stopping.wait()
        await app.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="broker under test")
    thread.start()
    try:
        broker = started.result(TIMEOUT_S)
        try:
            yield broker
        finally:
            broker._loop.call_soon_threadsafe(stopping.set)
    finally:
        thread.join(STOP_S)
        assert not thread.is_alive(), "the broker did not stop"
