"""One broker as a client reaches it: connected when needed, left alone after failures."""

import asyncio
import ssl
from collections.abc import Callable

from penstock.client.backoff import Backoff
from penstock.client.cluster import Node
from penstock.client.connection import ClientConnection, Login, is_final
from penstock.client.errors import DisconnectError, IllegalStateError
from penstock.client.link import Link
from penstock.client.network_metrics import NetworkMetrics
from penstock.client.settings import CommonOptions
from penstock.client.tls_errors import handshake_failure
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.net.server.framing import FrameMemory


class Surroundings:
    """What the peers of a client share."""

    def __init__(
        self,
        settings: CommonOptions,
        clock: Clock,
        *,
        on_disconnect: Callable[[int, KafkaError], None],
        metrics: NetworkMetrics | None = None,
        tls: ssl.SSLContext | None = None,
        tls_name: Callable[[str], str | None] = lambda host: host,
        login: Callable[[str], Login] | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.memory = FrameMemory(trusts=True)
        self.metrics = metrics
        self.send_buffer_bytes = settings["send_buffer_bytes"]
        self.receive_buffer_bytes = settings["receive_buffer_bytes"]
        self.tls = tls
        self.tls_name = tls_name
        self.login = login
        self.on_disconnect = on_disconnect
        self.reconnect = Backoff(
            settings["reconnect_backoff_ms"], settings["reconnect_backoff_max_ms"]
        )
        self.setup_time = Backoff(
            settings["socket_connection_setup_timeout_ms"],
            settings["socket_connection_setup_timeout_max_ms"],
        )


class Peer:
    """A broker, whatever connection there is to it. Its address may change."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        self.node = node
        self.link: Link | None = None
        self.throttled_until_ms = 0
        self._around = around
        self._connecting: asyncio.Task[Link] | None = None
        self._failures = 0
        self._not_before_ms = 0
        self._expires_ms: int | None = None
        """When the login is to be renewed."""
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        link = self.link
        return link is not None and link.closed is None and not self._must_renew()

    @property
    def is_connecting(self) -> bool:
        return self._connecting is not None

    @property
    def in_flight(self) -> int:
        return 0 if self.link is None else self.link.in_flight

    def backoff_ms(self, now_ms: int) -> int:
        """How long no connection will be tried."""
        return max(0, self._not_before_ms - now_ms)

    def move(self, node: Node) -> None:
        """The broker has another address: it is used from now on."""
        if (node.host, node.port) != (self.node.host, self.node.port):
            self._failures = 0
            self._not_before_ms = 0
            if self.link is not None:
                self.link.close(DisconnectError(f"broker {self.node} has moved to {node}"))
        self.node = node

    async def ready(self) -> Link:
        """A connection that requests may be sent on. Raises what kept it from being made."""
        while True:
            if self._is_closed:
                raise IllegalStateError("this client is closed: make a new one")
            link = self.link
            if link is not None and link.closed is None:
                if not self._must_renew():
                    return link
                self._retire(link)
            if self._connecting is None or self._connecting.done():
                # Done, and its connection lost before anybody could use it: waiting for it again
                # would not wait at all.
                self._connecting = asyncio.ensure_future(self._connect())
                self._connecting.add_done_callback(self._connected)
            await asyncio.shield(self._connecting)

    async def close(self) -> None:
        self._is_closed = True
        gone = IllegalStateError("the client was closed while this call waited")
        if self.link is not None:
            self.link.close(gone)
        task = self._connecting
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def close_if_idle(self, now_ms: int) -> None:
        link = self.link
        limit = self._around.settings["connections_max_idle_ms"]
        if link is None or limit < 0 or link.in_flight:
            return
        if now_ms - link.last_used_ms >= limit:
            # No failure: neither a wait nor new metadata follow from it.
            self.link = None
            link.close(DisconnectError(f"the connection to {self.node} was idle for {limit} ms"))

    def _must_renew(self) -> bool:
        expires = self._expires_ms
        return expires is not None and self._around.clock.monotonic_ms() >= expires

    def _retire(self, link: Link) -> None:
        """Let a connection end whose login has come of age, once its answers are there."""
        self.link = None
        self._expires_ms = None
        _close_when_done(link)

    def _connected(self, task: "asyncio.Task[Link]") -> None:
        if self._connecting is task:
            self._connecting = None
        if not task.cancelled():
            # Seen here, so that it is no unheard error when all who waited have gone.
            task.exception()

    async def _connect(self) -> Link:
        around = self._around
        wait_ms = self.backoff_ms(around.clock.monotonic_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        try:
            link = await self._open()
        except KafkaError as error:
            self._failed(error)
            raise
        self._failures = 0
        self.link = link
        lifetime = link.connection.session_lifetime_ms
        if lifetime:
            self._expires_ms = around.clock.monotonic_ms() + lifetime * 85 // 100
        return link

    async def _open(self) -> Link:
        around, node = self._around, self.node
        login = None if around.login is None else around.login(node.host)
        connection = ClientConnection(around.settings["client_id"], login, str(node))
        loop = asyncio.get_running_loop()
        limit_ms = around.setup_time.delay_ms(self._failures)
        link = Link(connection, around, str(node), self._on_close)
        tls_name = around.tls_name(node.host) if around.tls is not None else None
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await loop.create_connection(
                    lambda: link,
                    node.host,
                    node.port,
                    ssl=around.tls,
                    server_hostname=tls_name,
                )
                await asyncio.shield(link.opened)
        except BaseException as error:
            failure = _explained(error, node, limit_ms, tls=around.tls is not None)
            link.close(failure)
            if isinstance(error, Exception):
                raise failure from (None if failure is error else error)
            raise
        return link

    def _failed(self, error: KafkaError) -> None:
        around = self._around
        self._not_before_ms = around.clock.monotonic_ms() + around.reconnect.delay_ms(
            self._failures
        )
        self._failures += 1
        around.on_disconnect(self.node.id, error)

    def _on_close(self, link: Link, error: KafkaError) -> None:
        if self.link is link:
            self.link = None
            self._expires_ms = None
            if not self._is_closed:
                self._failed(error)


def _close_when_done(link: Link) -> None:
    if link.in_flight and link.closed is None:
        asyncio.get_running_loop().call_later(0.1, _close_when_done, link)
    else:
        link.close(DisconnectError(f"the login at {link.address} has come of age"))


def _explained(error: BaseException, node: Node, limit_ms: int, *, tls: bool) -> KafkaError:
    """Why a connection was not made, and what to do about it (E6)."""
    if isinstance(error, KafkaError):
        if is_final(error) or isinstance(error, DisconnectError):
            return error
        return DisconnectError(error.message, error.code)
    where = (
        f"broker {node}, an address that the cluster itself gives: check advertised.listeners of "
        "the broker and whether this machine can reach it"
        if node.id >= 0
        else f"{node}: check bootstrap_servers, that the broker runs, and that nothing between "
        "blocks the port"
    )
    if isinstance(error, ssl.SSLError):
        return handshake_failure(error, str(node))
    if tls and isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return DisconnectError(
            f"{node} closed the connection during the TLS handshake: if this listener has no TLS, "
            "set security_protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of one that has"
        )
    if isinstance(error, TimeoutError):
        return DisconnectError(f"no connection within {limit_ms} ms to {where}")
    return DisconnectError(f"cannot connect ({error}) to {where}")
