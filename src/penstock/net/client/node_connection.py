"""The connection to one broker: established when needed, with back-off after failures."""

import asyncio
import ssl

from penstock.core.errors import KafkaError, nested_text
from penstock.net.client.channel import Channel
from penstock.net.client.cluster import Node
from penstock.net.client.connection import ClientConnection, is_fatal
from penstock.net.client.context import ConnectionContext
from penstock.net.client.errors import DisconnectError, IllegalStateError
from penstock.net.client.tls_errors import handshake_error

_RENEW_AFTER_PERCENT = 85
"""A login is renewed after this part of its lifetime, so that no request meets an expired one."""


class NodeConnection:
    """A broker and the current channel to it, if any. The broker's address may change."""

    def __init__(self, node: Node, context: ConnectionContext) -> None:
        self.node = node
        self.channel: Channel | None = None
        self.throttled_until_ms = 0
        self._context = context
        self._connecting: asyncio.Task[Channel] | None = None
        self._failures = 0
        self._not_before_ms = 0
        self._login_expires_ms: int | None = None
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        channel = self.channel
        return channel is not None and channel.close_error is None and not self._must_renew_login()

    @property
    def is_connecting(self) -> bool:
        return self._connecting is not None

    @property
    def in_flight(self) -> int:
        return 0 if self.channel is None else self.channel.in_flight

    def backoff_ms(self, now_ms: int) -> int:
        """Returns how long no connection attempt will be made."""
        return max(0, self._not_before_ms - now_ms)

    def move(self, node: Node) -> None:
        """Uses another address of the broker from now on."""
        if (node.host, node.port) != (self.node.host, self.node.port):
            self._failures = 0
            self._not_before_ms = 0
            if self.channel is not None:
                self.channel.close(DisconnectError(f"broker {self.node} has moved to {node}"))
        self.node = node

    async def ready(self) -> Channel:
        """Waits for an open channel and returns it. Raises the reason if connecting fails."""
        while True:
            if self._is_closed:
                raise IllegalStateError("this client is closed", remedy="create a new one")
            channel = self.channel
            if channel is not None and channel.close_error is None:
                if not self._must_renew_login():
                    return channel
                self._retire(channel)
            if self._connecting is None or self._connecting.done():
                # The task may be done and its channel lost again already: waiting for that task
                # would return at once, so a new one is needed.
                self._connecting = asyncio.ensure_future(self._connect())
                self._connecting.add_done_callback(self._connect_done)
            await asyncio.shield(self._connecting)

    async def close(self) -> None:
        self._is_closed = True
        if self.channel is not None:
            self.channel.close(IllegalStateError("the client was closed while this call waited"))
        task = self._connecting
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def close_if_idle(self, now_ms: int) -> None:
        channel = self.channel
        limit_ms = self._context.settings.connections_max_idle_ms
        if channel is None or limit_ms < 0 or channel.in_flight:
            return
        if now_ms - channel.last_used_ms >= limit_ms:
            # Detached first: an idle close is no failure and causes no back-off.
            self.channel = None
            channel.close(
                DisconnectError(f"the connection to {self.node} was idle for {limit_ms} ms")
            )

    def _must_renew_login(self) -> bool:
        expires_ms = self._login_expires_ms
        return expires_ms is not None and self._context.clock.monotonic_ms() >= expires_ms

    def _retire(self, channel: Channel) -> None:
        """Closes a channel with an expiring login once its responses have arrived."""
        self.channel = None
        self._login_expires_ms = None
        _close_when_done(channel)

    def _connect_done(self, task: "asyncio.Task[Channel]") -> None:
        if self._connecting is task:
            self._connecting = None
        if not task.cancelled():
            # Retrieved here, so that asyncio does not log it if no caller waits any more.
            task.exception()

    async def _connect(self) -> Channel:
        clock = self._context.clock
        wait_ms = self.backoff_ms(clock.monotonic_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        try:
            channel = await self._open_channel()
        except KafkaError as error:
            self._record_failure(error)
            raise
        self._failures = 0
        self.channel = channel
        lifetime_ms = channel.connection.session_lifetime_ms
        if lifetime_ms:
            renewal_ms = lifetime_ms * _RENEW_AFTER_PERCENT // 100
            self._login_expires_ms = clock.monotonic_ms() + renewal_ms
        return channel

    async def _open_channel(self) -> Channel:
        context, node = self._context, self.node
        settings = context.settings
        login = None if settings.login is None else settings.login(node.host)
        connection = ClientConnection(settings.client_id, login, str(node))
        timeout_ms = context.setup_timeout.delay_ms(self._failures)
        channel = Channel(connection, context, str(node), self._on_close)
        tls_name = server_hostname(node.host) if settings.tls is not None else None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if login is not None and login.prepare is not None:
                    await asyncio.to_thread(login.prepare)
                await asyncio.get_running_loop().create_connection(
                    lambda: channel,
                    node.host,
                    node.port,
                    ssl=settings.tls,
                    server_hostname=tls_name,
                )
                await asyncio.shield(channel.opened)
        except BaseException as error:
            failure = _connection_error(error, node, timeout_ms, tls=settings.tls is not None)
            channel.close(failure)
            if isinstance(error, Exception):
                raise failure from (None if failure is error else error)
            raise
        return channel

    def _record_failure(self, error: KafkaError) -> None:
        context = self._context
        delay_ms = context.reconnect_backoff.delay_ms(self._failures)
        self._not_before_ms = context.clock.monotonic_ms() + delay_ms
        self._failures += 1
        context.on_disconnect(self.node.id, error)

    def _on_close(self, channel: Channel, error: KafkaError) -> None:
        if self.channel is channel:
            self.channel = None
            self._login_expires_ms = None
            if not self._is_closed:
                self._record_failure(error)


def server_hostname(host: str) -> str:
    """Returns the name that a broker's certificate must have, from the host of its address."""
    return host.strip("[]").partition("%")[0].rstrip(".")


def _close_when_done(channel: Channel) -> None:
    if channel.in_flight and channel.close_error is None:
        asyncio.get_running_loop().call_later(0.1, _close_when_done, channel)
    else:
        channel.close(DisconnectError(f"the login at {channel.address} has expired"))


def _connection_error(
    error: BaseException, node: Node, timeout_ms: int, *, tls: bool
) -> KafkaError:
    """Returns the error for the caller: why connecting failed and what to do about it (E6)."""
    if isinstance(error, KafkaError):
        if is_fatal(error) or isinstance(error, DisconnectError):
            return error
        return DisconnectError(nested_text(error), error.code)
    if node.id >= 0:
        target = f"broker {node}, an address that the cluster advertises"
        remedy = "check advertised.listeners of the broker and whether this machine can reach it"
    else:
        target = str(node)
        remedy = (
            "check `bootstrap_servers`, that the broker runs, and that no firewall blocks the port"
        )
    if isinstance(error, ssl.SSLError):
        return handshake_error(error, str(node))
    if tls and isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return DisconnectError(
            f"{node} closed the connection during the TLS handshake",
            remedy="if this listener has no TLS, set `security_protocol` to PLAINTEXT or "
            "SASL_PLAINTEXT, or use the port of one that has",
        )
    if isinstance(error, TimeoutError):
        return DisconnectError(f"no connection within {timeout_ms} ms to {target}", remedy=remedy)
    return DisconnectError(f"cannot connect ({error}) to {target}", remedy=remedy)
