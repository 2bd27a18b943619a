"""A `penstock.net` server with a scripted service, and clients for it."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NamedTuple

import uvloop

from penstock.core.clock import Clock
from penstock.net.server.connection import Connection, PendingResponse
from penstock.net.server.file_ranges import FileLoader
from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Listener, SocketServer
from penstock.net.tls.settings import TlsSettings

TIMEOUT_S: Final = 60.0

Scenario = Callable[[], Coroutine[Any, Any, None]]


def run(scenario: Scenario, loop: str = "asyncio") -> None:
    """Runs the scenario on a new event loop of that kind."""
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
    response.send([framed(bytes(frame))])


class RecordingService:
    """Records its calls, and responds with `respond`, which is an echo by default."""

    def __init__(
        self, respond: Callable[[Connection, memoryview, PendingResponse], None] = echo
    ) -> None:
        self.respond = respond
        self.log_in = True
        self.connections: list[Connection] = []
        self.frames: list[bytes] = []
        self.reasons: list[str] = []
        self._changed = asyncio.Event()

    def handshake_failed(self, connection: Connection, reason: str) -> None: ...

    def connected(self, connection: Connection) -> None:
        connection.authenticated = self.log_in
        self.connections.append(connection)
        self._changed.set()

    def received(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self._changed.set()
        self.respond(connection, frame, connection.begin_response())

    def disconnected(self, connection: Connection, reason: str) -> None:
        self.reasons.append(reason)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a call after which the condition holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()


class Running(NamedTuple):
    server: SocketServer
    service: RecordingService
    port: int


@contextlib.asynccontextmanager
async def serving(
    service: RecordingService | None = None,
    limits: Limits | None = None,
    *,
    tls: TlsSettings | None = None,
    clock: Clock | None = None,
    files: FileLoader | None = None,
) -> AsyncIterator[Running]:
    """Runs a server on a free port of 127.0.0.1."""
    service = service or RecordingService()
    server = SocketServer(service, limits, clock=clock, files=files)
    (address,) = await server.start([Listener("TEST", "127.0.0.1", 0, tls)])
    try:
        yield Running(server, service, address.port)
    finally:
        await server.close(0)


class Client:
    """One connection with the streams of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *payloads: bytes) -> None:
        await self.send_raw(b"".join(map(framed, payloads)))

    async def send_raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def request(self, payload: bytes) -> bytes:
        await self.send(payload)
        return await self.receive()

    async def at_end(self) -> bool:
        """Returns whether the server closes the connection without sending another byte."""
        try:
            return not await self.reader.read(1)
        except ConnectionError:
            return True


@contextlib.asynccontextmanager
async def client(port: int, **options: Any) -> AsyncIterator[Client]:
    """Connects to the server; options are those of `asyncio.open_connection`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
