"""One connection to a broker with its socket: an asyncio protocol around `ClientConnection`."""

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar, cast

from penstock.core.errors import KafkaError, ProtocolError, nested_text
from penstock.net.client.connection import ClientConnection, State
from penstock.net.client.context import ConnectionContext
from penstock.net.client.errors import ClientError, DisconnectError, KafkaTimeoutError
from penstock.net.client.tls_errors import handshake_error
from penstock.net.framing import FrameReader
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message

_MAX_FRAME: Final = 2**31 - 1
_MAX_FIRST_FRAME: Final = 1024 * 1024
"""A longer frame before the connection is open is not Kafka's protocol, but HTTP or TLS."""

R = TypeVar("R", bound=Message)


class _Deadline(NamedTuple):
    """When a request times out, by the clock of the event loop."""

    time_s: float
    timeout_ms: int | None
    request_type: type[Message]


_time_of = attrgetter("time_s")


class Channel(asyncio.BufferedProtocol):
    """One connection to a broker. `opened` is done once requests may be sent.

    It closes once, with an error that every request in flight receives; then `on_close` is called.
    """

    def __init__(
        self,
        connection: ClientConnection,
        context: ConnectionContext,
        address: str,
        on_close: Callable[["Channel", KafkaError], None],
    ) -> None:
        self.connection = connection
        self.address = address
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.close_error: KafkaError | None = None
        """Why the channel is closed; None while it is open."""
        self.last_used_ms = context.clock.monotonic_ms()
        self._has_responses = False
        self._on_close = on_close
        self._context = context
        self._metrics = context.metrics
        self._reader = FrameReader(context.memory, _MAX_FIRST_FRAME)
        self._transport: asyncio.Transport | None = None
        self._deadlines: dict[asyncio.Future[Message], _Deadline] = {}
        """The request timeout of each response that is awaited."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs at the first deadline or before it: one timer for each request takes 2 to 5 µs."""
        self._timer_at = math.inf

    @property
    def in_flight(self) -> int:
        return len(self.connection.in_flight)

    def send(
        self,
        message: Message,
        version: int,
        response_type: type[R],
        timeout_ms: int | None,
        body: list[Part] | None = None,
    ) -> "asyncio.Future[R]":
        """Writes a request and returns the future of its response.

        The channel is closed when no response arrives within `timeout_ms`; None waits forever.
        `body` is the message if it has been encoded already.
        """
        if self.close_error is not None:
            raise self.close_error
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        parts = self.connection.send(
            message, version, response_type, lambda response: self._complete(future, response), body
        )
        time_s = math.inf if timeout_ms is None else loop.time() + timeout_ms / 1000
        self._deadlines[future] = _Deadline(time_s, timeout_ms, type(message))
        if time_s < self._timer_at:
            self._run_timer_at(time_s)
        self._write(parts)
        return cast("asyncio.Future[R]", future)

    def send_without_response(self, message: Message, version: int) -> None:
        """Writes a request that has no response: Produce with acks=0."""
        if self.close_error is not None:
            raise self.close_error
        parts = self.connection.send(message, version, type(message), lambda _: None)
        self.connection.in_flight.pop()
        self._write(parts)

    def close(self, error: KafkaError) -> None:
        """Aborts the connection; requests in flight fail with `error`. Idempotent."""
        if self.close_error is not None:
            return
        self.close_error = error
        if self._transport is not None:
            self._transport.abort()
        self._reader.release()
        if self._metrics is not None and self._transport is not None:
            self._metrics.disconnected()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        futures, self._deadlines = list(self._deadlines), {}
        for future in futures:
            if not future.done():
                future.set_exception(error)
                # Retrieved here, so that asyncio does not log it if the caller no longer waits.
                future.exception()
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()
        self._on_close(self, error)

    def _complete(self, future: "asyncio.Future[Message]", response: Message) -> None:
        self._has_responses = True
        if self._metrics is not None:
            self._metrics.response_received()
        self._deadlines.pop(future, None)
        if not future.done():
            future.set_result(response)

    def _run_timer_at(self, time_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = time_s
        self._timer = asyncio.get_running_loop().call_at(time_s, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Closes the channel if a response is overdue."""
        self._timer = None
        self._timer_at = math.inf
        if not self._deadlines:
            return
        time_s, timeout_ms, request_type = min(self._deadlines.values(), key=_time_of)
        if time_s > asyncio.get_running_loop().time():
            if time_s < math.inf:
                self._run_timer_at(time_s)
            return
        name = request_type.__name__.removesuffix("Request")
        self.close(
            KafkaTimeoutError(
                f"broker {self.address} did not respond to {name} within {timeout_ms} ms",
                remedy="it is overloaded or unreachable; raise `request_timeout_ms` if it needs "
                "longer",
            )
        )

    def _write(self, parts: list[Part]) -> None:
        assert self._transport is not None
        self.last_used_ms = self._context.clock.monotonic_ms()
        # Requests never contain file ranges.
        chunks = cast("list[bytes]", parts)
        if self._metrics is not None:
            self._metrics.request_sent(sum(map(len, chunks)), self.last_used_ms)
        if len(chunks) == 1:
            self._transport.write(chunks[0])
        else:
            self._transport.writelines(chunks)

    # --- asyncio.BufferedProtocol

    def socket_option(self, level: int, name: int, size: int) -> bytes | None:
        """Returns an option of the connection's socket, such as its statistics."""
        if self._transport is None:
            return None
        value: bytes = self._transport.get_extra_info("socket").getsockopt(level, name, size)
        return value

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            settings = self._context.settings
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for option, size in (
                    (socket.SO_SNDBUF, settings.send_buffer_bytes),
                    (socket.SO_RCVBUF, settings.receive_buffer_bytes),
                ):
                    if size >= 0:
                        sock.setsockopt(socket.SOL_SOCKET, option, size)
        if self._metrics is not None:
            self._metrics.connected()
        if self.close_error is not None:
            self._transport.abort()
            return
        self._write(self.connection.open())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.close_error is not None:
            return
        if self._metrics is not None:
            self._metrics.bytes_received(nbytes)
        try:
            for frame in self._reader.feed(nbytes):
                parts = self.connection.receive(frame)
                if parts:
                    self._write(parts)
                elif not self.opened.done() and self.connection.state is State.READY:
                    self._reader.max_size = _MAX_FRAME
                    self.opened.set_result(None)
        except ProtocolError as error:
            self.close(self._protocol_violation(error))
        except KafkaError as error:
            self.close(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.opened.done():
            cause = f": {exc}" if exc is not None else ""
            text = f"broker {self.address} closed the connection{cause}"
            if self._has_responses or self.connection.has_login:
                self.close(DisconnectError(text))
                return
            self.close(
                DisconnectError(
                    f"{text} at the first request",
                    remedy="if this listener demands a login, set `security_protocol` to "
                    "SASL_PLAINTEXT or SASL_SSL",
                )
            )
            return
        if isinstance(exc, ssl.SSLError):
            self.close(handshake_error(exc, self.address))
            return
        self.close(
            DisconnectError(
                f"{self.address} closed the connection before it was open",
                remedy="check that `security_protocol` is that of this listener (TLS or not, login "
                "or not), and that the broker allows one more connection",
            )
        )

    def _protocol_violation(self, error: ProtocolError) -> ClientError:
        if self.opened.done():
            return ClientError(nested_text(error), error.code)
        return DisconnectError(
            f"the response of {self.address} is not Kafka's protocol",
            remedy="check the port, and whether `security_protocol` must be SSL or SASL_SSL "
            f"({nested_text(error)})",
        )
