"""The socket server: listeners, connections, the sweep for idle ones, and shutdown."""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import Final, NamedTuple, Protocol

from penstock.core.clock import Clock
from penstock.core.ids import TimestampMs
from penstock.core.memory_budget import MemoryBudget
from penstock.net.framing import FrameMemory
from penstock.net.server.acceptor import Acceptor, ConnectionThrottle, NoThrottle
from penstock.net.server.connection import Connection
from penstock.net.server.file_ranges import ExecutorOf, FileLoader
from penstock.net.server.host_names import overrides_by_name, resolve_overrides
from penstock.net.server.interfaces import Peer
from penstock.net.server.limits import Admission, Backlog, Limits, LogRateLimiter
from penstock.net.server.listening import listen
from penstock.net.server.memory_watch import MemoryWatch
from penstock.net.server.tls_transport import TlsTransport
from penstock.net.server.transport import PlaintextTransport
from penstock.net.tls.settings import TlsSettings, TlsSource

_SWEEP_S: Final = 1.0
_UNLIMITED_MEMORY: Final = 2**62


class Service(Protocol):
    """Receives the requests of all connections. Everything is called in the event loop."""

    def connected(self, connection: Connection) -> None:
        """Notes a new connection, after its TLS handshake."""
        ...

    def handshake_failed(self, connection: Connection, reason: str) -> None:
        """Notes a TLS handshake that failed; `connected` is not called for the connection."""
        ...

    def received(self, connection: Connection, frame: memoryview) -> None:
        """Handles one request, without its length prefix, in writable memory of its own.

        It must call `connection.begin_response()` or `respond()` once. A ProtocolError closes the
        connection with a line in the log, any other exception with a traceback.
        """
        ...

    def disconnected(self, connection: Connection, reason: str) -> None:
        """Notes the end of a connection, once for each `connected`."""
        ...


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    host: str
    """The address to bind; empty for all addresses."""
    port: int
    """0 for any free port."""
    tls: TlsSettings | ssl.SSLContext | None = None


class Address(NamedTuple):
    """The address that a listener is bound to."""

    listener: str
    host: str
    port: int


class _SystemClock:
    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class _OpenListener(NamedTuple):
    """A bound listener."""

    name: str
    acceptor: Acceptor
    tls: TlsSource | ssl.SSLContext | None


class SocketServer:
    """Serves connections on the running loop from `start` to `close`."""

    def __init__(
        self,
        service: Service,
        limits: Limits | None = None,
        *,
        clock: Clock | None = None,
        logger: logging.Logger | None = None,
        files: FileLoader | None = None,
        executor_of: ExecutorOf | None = None,
        throttle: ConnectionThrottle | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.admission = Admission(self.limits)
        """The numbers of open connections: `total`, `by_listener`, `by_ip`."""
        self.backlog = Backlog(self.limits)
        self.received = service.received
        self._service = service
        self._throttle = throttle or NoThrottle()
        self._clock = clock or _SystemClock()
        self._log = logger or logging.getLogger(__name__)
        self._files = files or FileLoader(executor_of)
        self._memory = FrameMemory()
        self._budget = budget or MemoryBudget(_UNLIMITED_MEMORY)
        self._budget.on_pressure = self._memory.set_pressure
        self._memory_watch = MemoryWatch(self._budget, self.limits)
        self._log_limiter = LogRateLimiter()
        self._open: list[_OpenListener] = []
        self._connections: dict[Connection, bool] = {}
        """Open connections, and whether `Service.connected` was called."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._overrides: Mapping[str, int] = {}
        """The overrides whose names were resolved last."""
        self._resolution: asyncio.Task[None] | None = None
        self._all_closed: asyncio.Event | None = None

    @property
    def connections(self) -> Sequence[Connection]:
        return list(self._connections)

    async def start(self, listeners: Sequence[Listener]) -> list[Address]:
        """Binds all listeners and accepts connections; see `bind`."""
        addresses = await self.bind(listeners)
        self.accept()
        return addresses

    async def bind(self, listeners: Sequence[Listener]) -> list[Address]:
        """Binds all listeners; raises KafkaError, with none bound, if one fails.

        Connections wait until `accept` is called.
        """
        self._loop = asyncio.get_running_loop()
        self._overrides = self.limits.per_ip_overrides
        await self._resolve_overrides(overrides_by_name(self._overrides))
        opened: list[tuple[_OpenListener, socket.socket]] = []
        try:
            for listener in listeners:
                tls = listener.tls
                source = TlsSource(tls) if isinstance(tls, TlsSettings) else tls
                sock = await listen(
                    listener.host, listener.port, f"listener {listener.name}", self.limits
                )
                acceptor = Acceptor(
                    listener.name,
                    sock,
                    self.admission,
                    self._throttle,
                    partial(self._admit, listener.name, source),
                    self._warn,
                    self._log,
                )
                opened.append((_OpenListener(listener.name, acceptor, source), sock))
        except BaseException:
            for bound, _ in opened:
                bound.acceptor.stop()
            raise
        self._open += [bound for bound, _ in opened]
        return [Address(bound.name, *sock.getsockname()[:2]) for bound, sock in opened]

    def accept(self) -> None:
        """Starts to accept connections on the bound listeners."""
        for bound in self._open:
            bound.acceptor.start()
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep_again)

    def reload_tls(
        self,
        listener: str,
        settings: TlsSettings | None = None,
        check: Callable[[TlsSettings], None] | None = None,
    ) -> bool:
        """Loads new settings or changed files for new connections; returns whether any changed.

        `check` is called first if there are any, and may raise KafkaError to refuse them.
        """
        changed = False
        for bound in self._open:
            if bound.name == listener and isinstance(bound.tls, TlsSource):
                changed = bound.tls.reload(settings, check) or changed
        return changed

    def stop_accepting(self) -> None:
        for listener in self._open:
            listener.acceptor.stop()
        self._open.clear()
        if self._resolution is not None:
            self._resolution.cancel()

    async def close(self, grace_s: float) -> None:
        """Waits at most `grace_s` for pending responses to be sent, then closes everything."""
        self.stop_accepting()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        reason = "the broker is shutting down"
        for connection in self.connections:
            connection.close_after_responses(reason)
        if self._connections and grace_s > 0:
            self._all_closed = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), grace_s)
        for connection in self.connections:
            connection.close(reason)
        self._files.close()

    def sweep(self) -> None:
        """Closes connections that are idle or have not logged in in time. Called every second.

        Connections that keep memory from others are closed, too: see `MemoryWatch`.
        """
        self.limits_changed()
        now_ms = self._clock.monotonic_ms()
        self._memory_watch.sweep(self.connections, now_ms)
        budget = self._budget
        if budget.waiting:
            self._warn(
                "memory",
                "%d requests wait for memory: %d of request.memory.max.bytes=%d are in use",
                budget.waiting,
                budget.used,
                budget.total,
            )
        idle_ms = self.limits.idle_ms
        login_ms = self.limits.login_ms
        for connection in self.connections:
            is_busy = connection.in_flight and not connection.send_queue.parts
            if connection.active or connection.waits_for_memory or is_busy:
                connection.active = False
                connection.last_active_ms = now_ms
            elif 0 <= idle_ms < now_ms - connection.last_active_ms:
                connection.close(
                    f"no request and no response read for connections.max.idle.ms={idle_ms}",
                    expected=True,
                )
                continue
            if not connection.authenticated and 0 <= login_ms < now_ms - connection.opened_ms:
                connection.close(f"not logged in after {login_ms} ms")

    def _sweep_again(self) -> None:
        self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep_again)
        self.sweep()

    # --- accepting

    def limits_changed(self) -> None:
        """Applies changed limits on connections now instead of at the next sweep."""
        if self.limits.per_ip_overrides is not self._overrides:
            names = overrides_by_name(self.limits.per_ip_overrides)
            if names != overrides_by_name(self._overrides):
                if self._resolution is not None:
                    self._resolution.cancel()
                self._resolution = self._loop.create_task(self._resolve_overrides(names))
            self._overrides = self.limits.per_ip_overrides
        self._close_excess()
        self._check_room()

    async def _resolve_overrides(self, names: Mapping[str, int]) -> None:
        self.admission.named_overrides, unknown = await resolve_overrides(names)
        if unknown:
            self._log.warning(
                "max.connections.per.ip.overrides: the host %s cannot be resolved: check the name, "
                "or use its address",
                ", ".join(unknown),
            )

    def _check_room(self) -> None:
        for listener in self._open:
            listener.acceptor.check_room()

    def _close_excess(self) -> None:
        """Closes the connections that were idle longest, except on the protected listener."""
        excess = self.admission.excess
        if not excess:
            return
        protected = self.limits.protected_listener
        candidates = (
            connection for connection in self._connections if connection.peer.listener != protected
        )
        for connection in nsmallest(excess, candidates, key=_last_use):
            connection.close(
                f"max.connections={self.limits.max_connections} is exceeded, and this connection "
                f"was idle for the longest time"
            )

    def _admit(
        self,
        name: str,
        tls: TlsSource | ssl.SSLContext | None,
        sock: socket.socket,
        host: str,
        port: int,
    ) -> None:
        _prepare(sock, self.limits)
        connection = Connection(
            Peer(host, port, name, None),
            self,
            self.limits,
            self.backlog,
            self._memory,
            self._clock.monotonic_ms(),
            self._budget,
        )
        context = tls.context if isinstance(tls, TlsSource) else tls
        if context is None:
            transport = PlaintextTransport(self._loop, sock, connection, self._files)
        else:
            transport = TlsTransport(
                self._loop,
                sock,
                connection,
                self._files,
                context,
                self._memory,
                lambda subject: self._on_handshake(connection, subject),
                partial(self._service.handshake_failed, connection),
            )
        self.admission.enter(name, host)
        self._connections[connection] = False
        transport.start()
        if context is None:
            self._connect(connection)
        self._close_excess()

    def _on_handshake(self, connection: Connection, subject: str | None) -> None:
        connection.peer = connection.peer._replace(tls_subject=subject)
        self._connect(connection)

    def _connect(self, connection: Connection) -> None:
        self._connections[connection] = True
        try:
            self._service.connected(connection)
        except Exception as error:  # noqa: BLE001  # it affects this connection only
            self.failed(connection, error)
            connection.close("an error in the broker, see its log")

    # --- events of connections

    def failed(self, connection: Connection, error: Exception) -> None:
        kind = f"failed with {type(error).__name__}"
        if self._log_limiter.allow(kind, self._clock.monotonic_ms()) is not None:
            self._log.error(
                "an error on the connection of %s",
                connection.peer.host,
                exc_info=error,
                extra=_fields(connection),
            )

    def closed(self, connection: Connection, reason: str, expected: bool) -> None:
        was_connected = self._connections.pop(connection)
        self.admission.leave(connection.peer.listener, connection.peer.host)
        self._check_room()
        if expected:
            self._log.debug("%r: %s", connection, reason, extra=_fields(connection))
        else:
            self._warn(
                "closed",
                "the connection of %s is closed: %s",
                connection.peer.host,
                reason,
                extra=_fields(connection),
            )
        if was_connected:
            try:
                self._service.disconnected(connection, reason)
            except Exception as error:  # noqa: BLE001  # it affects this connection only
                self.failed(connection, error)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    def _warn(
        self, kind: str, line: str, *args: object, extra: Mapping[str, object] | None = None
    ) -> None:
        suppressed = self._log_limiter.allow(kind, self._clock.monotonic_ms())
        if suppressed is None:
            return
        if suppressed:
            line += f" ({suppressed} similar lines were suppressed)"
        self._log.warning(line, *args, extra=extra)


def _last_use(connection: Connection) -> tuple[bool, int]:
    """The sort key of connections by idle time, the longest first."""
    return connection.active or connection.in_flight > 0, connection.last_active_ms


def _fields(connection: Connection) -> dict[str, object]:
    peer = connection.peer
    return {"peer_host": peer.host, "peer_port": peer.port, "listener": peer.listener}


def _prepare(sock: socket.socket, limits: Limits) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if limits.send_buffer >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer)
