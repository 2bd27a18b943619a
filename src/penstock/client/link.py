"""A connection with its socket: bytes of an asyncio transport in and out of `ClientConnection`."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

from penstock.client.connection import ClientConnection, State
from penstock.client.errors import ClientError, DisconnectError, KafkaTimeoutError
from penstock.client.network_metrics import NetworkMetrics
from penstock.client.tls_errors import handshake_failure
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError, ProtocolError
from penstock.net.server.framing import FrameMemory, FrameReader
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message

_MAX_FRAME: Final = 2**31 - 1
_MAX_FIRST_FRAME: Final = 1024 * 1024
"""Before the connection is open, a longer answer is something else than Kafka: HTTP, or TLS."""

R = TypeVar("R", bound=Message)


class Around(Protocol):
    """What the connections of a client share."""

    clock: Clock
    memory: FrameMemory
    metrics: NetworkMetrics | None
    send_buffer_bytes: int
    receive_buffer_bytes: int


class Link(asyncio.BufferedProtocol):
    """One connection to a broker. `opened` is done once requests may be sent.

    It ends once, with an error that every unanswered request gets; `on_close` hears of it.
    """

    def __init__(
        self,
        connection: ClientConnection,
        around: "Around",
        address: str,
        on_close: Callable[["Link", KafkaError], None],
    ) -> None:
        self.connection = connection
        self.address = address
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed: KafkaError | None = None
        self.last_used_ms = around.clock.monotonic_ms()
        self._has_answers = False
        self._on_close = on_close
        self._around = around
        self._metrics = around.metrics
        self._reader = FrameReader(around.memory, _MAX_FIRST_FRAME)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[asyncio.Future[Message], asyncio.TimerHandle | None] = {}

    @property
    def in_flight(self) -> int:
        return len(self.connection.pending)

    def send(
        self, message: Message, version: int, answer: type[R], timeout_ms: int | None
    ) -> "asyncio.Future[R]":
        """Write a request; the future is its answer. Without a timeout it may take for ever."""
        if self.closed is not None:
            raise self.closed
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        parts = self.connection.send(
            message, version, answer, lambda response: self._answered(future, response)
        )
        timer = None
        if timeout_ms is not None:
            timer = loop.call_later(timeout_ms / 1000, self._timed_out, timeout_ms, message)
        self._waiting[future] = timer
        self._write(parts)
        return cast("asyncio.Future[R]", future)

    def send_unanswered(self, message: Message, version: int) -> None:
        """Write a request that the broker does not answer: Produce with acks=0."""
        if self.closed is not None:
            raise self.closed
        parts = self.connection.send(message, version, type(message), lambda _: None)
        self.connection.pending.pop()
        self._write(parts)

    def close(self, error: KafkaError) -> None:
        """Give the connection up. Does nothing the second time."""
        if self.closed is not None:
            return
        self.closed = error
        if self._transport is not None:
            self._transport.abort()
        self._reader.release()
        if self._metrics is not None and self._transport is not None:
            self._metrics.disconnected()
        waiting, self._waiting = self._waiting, {}
        for future, timer in waiting.items():
            if timer is not None:
                timer.cancel()
            if not future.done():
                future.set_exception(error)
                # Whoever asked may be gone; then nobody need hear of it.
                future.exception()
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()
        self._on_close(self, error)

    def _answered(self, future: "asyncio.Future[Message]", response: Message) -> None:
        self._has_answers = True
        if self._metrics is not None:
            self._metrics.answered()
        timer = self._waiting.pop(future, None)
        if timer is not None:
            timer.cancel()
        if not future.done():
            future.set_result(response)

    def _timed_out(self, timeout_ms: int, message: Message) -> None:
        name = type(message).__name__.removesuffix("Request")
        self.close(
            KafkaTimeoutError(
                f"broker {self.address} did not answer {name} within {timeout_ms} ms: it is "
                "overloaded or unreachable; raise request_timeout_ms if it needs longer"
            )
        )

    def _write(self, parts: list[Part]) -> None:
        assert self._transport is not None
        self.last_used_ms = self._around.clock.monotonic_ms()
        # What a client sends never lies in a file.
        chunks = cast("list[bytes]", parts)
        if self._metrics is not None:
            self._metrics.sent(sum(map(len, chunks)), self.last_used_ms)
        if len(chunks) == 1:
            self._transport.write(chunks[0])
        else:
            self._transport.writelines(chunks)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for option, size in (
                    (socket.SO_SNDBUF, self._around.send_buffer_bytes),
                    (socket.SO_RCVBUF, self._around.receive_buffer_bytes),
                ):
                    if size >= 0:
                        sock.setsockopt(socket.SOL_SOCKET, option, size)
        if self._metrics is not None:
            self._metrics.connected()
        if self.closed is not None:
            self._transport.abort()
            return
        self._write(self.connection.open())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed is not None:
            return
        if self._metrics is not None:
            self._metrics.received(nbytes)
        try:
            for frame in self._reader.feed(nbytes):
                parts = self.connection.receive(frame)
                if parts:
                    self._write(parts)
                elif not self.opened.done() and self.connection.state is State.READY:
                    self._reader.max_size = _MAX_FRAME
                    self.opened.set_result(None)
        except ProtocolError as error:
            self.close(self._not_kafka(error))
        except KafkaError as error:
            self.close(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.opened.done():
            said = f": {exc}" if exc is not None else ""
            hint = (
                ""
                if self._has_answers or self.connection.logs_in
                else " at the first request: if this listener wants a login, set security_protocol "
                "to SASL_PLAINTEXT or SASL_SSL"
            )
            self.close(DisconnectError(f"broker {self.address} closed the connection{said}{hint}"))
            return
        if isinstance(exc, ssl.SSLError):
            self.close(handshake_failure(exc, self.address))
            return
        self.close(
            DisconnectError(
                f"{self.address} closed the connection before it was open: check that "
                "security_protocol is that of this listener (TLS or not, login or not), and that "
                "the broker has room for one more connection"
            )
        )

    def _not_kafka(self, error: ProtocolError) -> ClientError:
        if self.opened.done():
            return ClientError(error.message, error.code)
        return DisconnectError(
            f"what {self.address} answers is not Kafka's protocol: check the port, and whether "
            f"security_protocol must be SSL or SASL_SSL ({error.message})"
        )
