"""Serves HTTP requests on the event loop, within limits that no client can exceed (X5).

connections   at most `MAX_CONNECTIONS`: a new one replaces the one that was idle for the
              longest time, and is closed if none is idle; `NEW_CONNECTIONS_PER_S`
request       `MAX_HEAD_BYTES` within `REQUEST_S`, no body; one at a time, and the next one of a
              connection after `PAUSE_S`
response      sent in pieces of `PIECE_BYTES` as the client reads them, within `RESPONSE_S`
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast

from penstock.net.http.messages import (
    MAX_HEAD_BYTES,
    HttpError,
    HttpRequest,
    HttpResponse,
    encode_head,
    find_head,
    parse_head,
)
from penstock.net.server.acceptor import Acceptor
from penstock.net.server.limits import Admission, Limits, LogRateLimiter

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 16
NEW_CONNECTIONS_PER_S: Final = 100
_BURST_MS: Final = 200
REQUEST_S: Final = 5.0
"""From the first byte of a request, or the accept, to the end of its head."""
IDLE_S: Final = 120.0
"""Between two requests: longer than the scrape interval of most Prometheus servers."""
RESPONSE_S: Final = 10.0
"""From the end of the head to the last byte that the client has read."""
PAUSE_S: Final = 0.02
PIECE_BYTES: Final = 64 * 1024

Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class HttpServer:
    """Serves requests with `handler` on a listening socket, from `start` to `close`."""

    def __init__(self, handler: Handler, name: str = "HTTP") -> None:
        self._handler = handler
        self._name = name
        self._connections: dict[_Connection, None] = {}
        """Open connections; those that were used last are at the end."""
        self._tasks: set[asyncio.Task[object]] = set()
        self._log_limiter = LogRateLimiter()
        self._acceptor: Acceptor | None = None
        self._next_accept_ms = 0.0
        self.requests = 0
        self.refused = 0
        """Connections and requests that were closed because of a limit."""

    def start(self, sock: socket.socket) -> None:
        """Takes a listening socket and accepts connections on the running loop."""
        self._loop = asyncio.get_running_loop()
        admission = Admission(Limits())
        self._acceptor = Acceptor(
            self._name, sock, admission, self, self._admit, self._warn, logger
        )
        self._acceptor.start()

    async def close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop()
            self._acceptor = None
        for connection in list(self._connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- the rate of new connections (`ConnectionThrottle`)

    def accept_delay_ms(self, listener: str) -> int:
        now_ms = time.monotonic() * 1000
        self._next_accept_ms = max(now_ms, self._next_accept_ms) + 1000 / NEW_CONNECTIONS_PER_S
        return max(0, int(self._next_accept_ms - now_ms - _BURST_MS))

    def close_delay_ms(self, listener: str, ip: str) -> int:
        return 0

    # --- connections

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            self.refused += 1
            idle = next((conn for conn in self._connections if not conn.is_busy), None)
            if idle is None:
                sock.close()
                return
            idle.abort()
        sock.setblocking(False)
        connection = _Connection(self)
        self._connections[connection] = None
        self.spawn(self._loop.connect_accepted_socket(lambda: connection, sock), connection)

    def spawn(self, work: Awaitable[object], connection: "_Connection") -> None:
        """Runs work for a connection, which is closed if it fails."""
        task: asyncio.Task[object] = self._loop.create_task(_run(work))
        self._tasks.add(task)

        def done(task: asyncio.Task[object]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                connection.abort()
                if not isinstance(error, OSError):
                    self._warn("failed", "a request for %s failed: %r", self._name, error)

        task.add_done_callback(done)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        self.requests += 1
        try:
            return await self._handler(request)
        except Exception as error:  # noqa: BLE001 - other connections go on
            self._warn("handler", "%s %s failed: %r", request.method, request.path, error)
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log of the broker\n")

    def touch(self, connection: "_Connection") -> None:
        """Notes that a connection has sent a request."""
        if self._connections.pop(connection, True) is None:
            self._connections[connection] = None

    def discard(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)

    def _warn(self, kind: str, line: str, *args: object) -> None:
        if self._log_limiter.allow(kind, int(time.monotonic() * 1000)) is not None:
            logger.warning(line, *args)


async def _run(work: Awaitable[object]) -> object:
    return await work


class _Connection(asyncio.Protocol):
    """One client: reads a request, sends its response, and so on."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._unsent = memoryview(b"")
        self._keeps_alive = True
        self._is_closed = False
        self._can_write = True
        self._is_sending = False
        self.is_busy = False
        """Whether a request has no complete response yet."""
        self._timer = self._loop.call_later(REQUEST_S, self._time_out)

    # --- events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=PIECE_BYTES)
        if self._is_closed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._buffer and not self.is_busy:
            self._set_timer(REQUEST_S)
        self._buffer += data
        if self.is_busy:
            self._pause_if_full()
        else:
            self._read_request()

    def eof_received(self) -> bool:
        """Keeps the connection open while a response is sent."""
        self._keeps_alive = False
        return self.is_busy

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.abort()

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._send_pieces()

    # --- requests

    def _read_request(self) -> None:
        if self._is_closed or self.is_busy:
            return
        try:
            size = find_head(self._buffer)
            if not size:
                return
            request = parse_head(bytes(self._buffer[:size]))
        except HttpError as error:
            self._server.refused += 1
            self.is_busy = True
            self._keeps_alive = False
            self._set_timer(RESPONSE_S)
            self._begin_response(error.response, has_body=True)
            return
        del self._buffer[:size]
        self.is_busy = True
        self._keeps_alive = self._keeps_alive and request.keeps_alive
        self._set_timer(RESPONSE_S)
        self._pause_if_full()
        self._server.touch(self)
        self._server.spawn(self._respond(request), self)

    def _pause_if_full(self) -> None:
        if len(self._buffer) >= MAX_HEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()

    async def _respond(self, request: HttpRequest) -> None:
        response = await self._server.respond(request)
        self._begin_response(response, has_body=request.method != "HEAD")

    def _begin_response(self, response: HttpResponse, *, has_body: bool) -> None:
        if self._transport is None or self._is_closed:
            return
        self._is_sending = True
        self._transport.write(encode_head(response, keeps_alive=self._keeps_alive))
        self._unsent = memoryview(response.body if has_body else b"")
        self._send_pieces()

    def _send_pieces(self) -> None:
        """Sends as much as the client reads; the rest when it has read more."""
        transport = self._transport
        if transport is None or not self._is_sending:
            return
        while self._unsent and self._can_write:
            piece, self._unsent = self._unsent[:PIECE_BYTES], self._unsent[PIECE_BYTES:]
            transport.write(piece)
        if self._unsent:
            return
        self._is_sending = False
        if self._keeps_alive:
            self._loop.call_later(PAUSE_S, self._next_request)
        else:
            transport.close()

    def _next_request(self) -> None:
        if self._is_closed or self._transport is None:
            return
        self.is_busy = False
        self._set_timer(REQUEST_S if self._buffer else IDLE_S)
        if not self._transport.is_reading():
            self._transport.resume_reading()
        self._read_request()

    # --- the end

    def _set_timer(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        if self.is_busy or self._buffer:
            self._server.refused += 1
        self.abort()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._is_closed = True
        self._timer.cancel()
        self._unsent = memoryview(b"")
        self._server.discard(self)
        if self._transport is not None:
            self._transport.abort()
