"""Requests to the brokers of a cluster, on one event loop.

`NetworkClient` connects when a request needs it, backs off after failures, picks the newest version
that both sides support, obeys throttling, and refreshes the metadata if it has a `Metadata`. Which
request to send to which broker, and when to retry, is up to its callers.
"""

import asyncio
import dataclasses
import random
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypedDict, TypeVar, Unpack

from penstock.core.clock import Clock
from penstock.core.errors import KafkaError, nested_text
from penstock.net.client.backoff import Backoff
from penstock.net.client.channel import Channel
from penstock.net.client.cluster import Cluster, Node
from penstock.net.client.connection import NodeApiVersions
from penstock.net.client.context import ConnectionContext, ConnectionMetrics
from penstock.net.client.errors import (
    ConfigError,
    DisconnectError,
    IllegalStateError,
    KafkaTimeoutError,
)
from penstock.net.client.metadata import ClusterMetadata
from penstock.net.client.metadata_updater import MetadataUpdater
from penstock.net.client.node_connection import NodeConnection
from penstock.net.client.settings import ConnectionSettings, MetadataSettings
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import encode_parts
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

R = TypeVar("R", bound=Message)
Result = TypeVar("Result")

_IDLE_CHECK_S: Final = 10.0
_MAX_NODE_ID: Final = 2**31 - 1


Request: TypeAlias = Message | Callable[[int], Message]
"""A request, or a function that builds it for the version that is chosen."""
Encoder: TypeAlias = Callable[[Callable[[], list[Part]]], Awaitable[list[Part]]]
"""Calls a function that encodes a message, usually on a thread."""


class RequestOptions(TypedDict, total=False):
    """Limits of a request: its timeout, and the versions that the caller can use."""

    timeout_ms: int | None
    min_version: int
    max_version: int | None


class NetworkClient:
    """The connections of one client or broker to the brokers of a cluster.

    Created and used on one event loop. With `metadata` settings it finds the brokers and topics of
    the cluster; without, its owner provides the brokers: `metadata.set_nodes`.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        metadata: MetadataSettings | None = None,
        *,
        clock: Clock,
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        metadata_settings = metadata or MetadataSettings(())
        self.metadata = ClusterMetadata(
            metadata_settings.bootstrap,
            max_age_ms=metadata_settings.max_age_ms,
            max_idle_ms=metadata_settings.max_idle_ms,
        )
        self.retry_backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._context = ConnectionContext(
            settings, clock, on_disconnect=self._on_disconnect, metrics=metrics
        )
        self._connections: dict[int, NodeConnection] = {}
        self._updater = None if metadata is None else MetadataUpdater(self, metadata)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False
        self._connection_errors: dict[int, KafkaError] = {}
        """Why there is no connection to a broker, until it responds again."""
        self.metadata.listeners.append(self._on_metadata_update)

    async def start(self) -> None:
        """Starts to keep the metadata fresh. Connections are established when they are needed."""
        self.start_now()

    def start_now(self) -> None:
        """Like `start`, for callers that are not coroutines."""
        self._tasks = [asyncio.ensure_future(self._close_idle())]
        if self._updater is not None:
            self._tasks.append(asyncio.ensure_future(self._updater.run()))

    async def close(self) -> None:
        """Closes all connections; calls that wait fail. Idempotent."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._updater is not None:
            await self._updater.close()
        for connection in self._connections.values():
            await connection.close()

    # --- requests

    async def request(
        self,
        node_id: int,
        message: Request,
        response_type: type[R],
        **options: Unpack[RequestOptions],
    ) -> R:
        """Sends a request in the newest version that both sides support; returns the response.

        Connects first if there is no connection. `timeout_ms` defaults to `request_timeout_ms`;
        when it has passed, the connection is closed, because its state is unknown.

        Raises DisconnectError when the broker cannot be reached or the connection is lost,
        KafkaTimeoutError when there is no response in time, and AuthenticationError or
        UnsupportedVersionError, which retrying does not cure.
        """
        return await (await self.send(node_id, message, response_type, **options))

    async def send(
        self,
        node_id: int,
        message: Request,
        response_type: type[R],
        **options: Unpack[RequestOptions],
    ) -> "asyncio.Future[R]":
        """Like `request`, but returns the response's future as soon as the request is written.

        Requests to a broker are written in the order of the calls, and their responses arrive in
        the same order.
        """
        await self.ready(node_id)
        return self.send_now(node_id, message, response_type, **options)

    async def request_large(
        self, node_id: int, message: Request, response_type: type[R], encode_with: Encoder
    ) -> R:
        """Like `request`, but does not encode the request on the event loop."""
        await self.ready(node_id)
        connection, channel = self._connected(node_id)
        request, version = _versioned(channel, message, response_type, 0, None)
        body = await encode_with(partial(encode_parts, request, version))
        timeout_ms = self.settings.request_timeout_ms
        future = channel.send(request, version, response_type, timeout_ms, body)
        future.add_done_callback(lambda done: self._on_response(connection, done))
        return await future

    def send_now(
        self,
        node_id: int,
        message: Request,
        response_type: type[R],
        *,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> "asyncio.Future[R]":
        """Like `send`, but never waits: uses the existing connection; see `is_ready`."""
        connection, channel = self._connected(node_id)
        request, version = _versioned(channel, message, response_type, min_version, max_version)
        if timeout_ms is None:
            timeout_ms = self.settings.request_timeout_ms
        future = channel.send(request, version, response_type, timeout_ms)
        future.add_done_callback(lambda done: self._on_response(connection, done))
        return future

    def send_without_response_now(
        self, node_id: int, message: Request, response_type: type[Message]
    ) -> None:
        """Like `send_now`, for a request that has no response: Produce with acks=0."""
        _, channel = self._connected(node_id)
        channel.send_without_response(*_versioned(channel, message, response_type, 0, None))

    async def ready(self, node_id: int) -> None:
        """Waits for a connection to this broker, and for the end of throttling.

        Raises the same errors as `request`.
        """
        connection = self._connection(node_id)
        if not connection.is_ready:
            await connection.ready()
        while True:
            wait_ms = connection.throttled_until_ms - self.clock.monotonic_ms()
            if wait_ms <= 0:
                return
            await asyncio.sleep(wait_ms / 1000)
            await connection.ready()

    def is_ready(self, node_id: int) -> bool:
        """Whether a request can be written now, without waiting."""
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_ready:
            return False
        return connection.throttled_until_ms <= self.clock.monotonic_ms()

    async def request_any(
        self,
        message: Request,
        response_type: type[R],
        *,
        deadline_ms: int,
        min_version: int = 0,
    ) -> R:
        """Sends a request to any broker, and to others if it fails, until the deadline."""
        return await self.retry(
            deadline_ms,
            lambda: self.request(
                self.least_loaded_node(), message, response_type, min_version=min_version
            ),
        )

    async def retry(self, deadline_ms: int, call: Callable[[], Awaitable[Result]]) -> Result:
        """Awaits `call()` until it succeeds. Raises its last error if there is no time left."""
        attempts = 0
        while True:
            try:
                return await self.within(deadline_ms, call)
            except KafkaError as error:
                await self.wait_before_retry(error, attempts, deadline_ms)
            attempts += 1

    async def within(self, deadline_ms: int, call: Callable[[], Awaitable[Result]]) -> Result:
        """Awaits `call()`. Raises KafkaTimeoutError when the deadline passes first."""
        remaining_ms = deadline_ms - self.clock.monotonic_ms()
        if remaining_ms <= 0:
            raise self.timeout_error("the time for this call has run out")
        try:
            async with asyncio.timeout(remaining_ms / 1000):
                return await call()
        except TimeoutError:
            raise self.timeout_error(
                "the time for this call has run out while waiting for a broker"
            ) from None

    def timeout_error(self, message: str) -> KafkaTimeoutError:
        """Returns the error of a call that ran out of time, with the reasons why brokers cannot be
        reached."""
        reasons = " ".join(nested_text(error) for error in self._connection_errors.values())
        return KafkaTimeoutError(f"{message}: {reasons}" if reasons else message)

    async def wait_before_retry(self, error: KafkaError, attempts: int, deadline_ms: int) -> None:
        """Waits before the next attempt. Raises `error` if it is not retriable, or if the next
        attempt would begin after the deadline."""
        if not error.code.retriable or isinstance(error, ConfigError | IllegalStateError):
            raise error
        delay_ms = self.retry_backoff.delay_ms(attempts)
        if self.clock.monotonic_ms() + delay_ms >= deadline_ms:
            raise error
        await asyncio.sleep(delay_ms / 1000)

    # --- brokers

    def in_flight(self, node_id: int) -> int:
        connection = self._connections.get(node_id)
        return 0 if connection is None else connection.in_flight

    def backoff_ms(self, node_id: int, now_ms: int) -> int:
        """Returns how long no request can be sent to this broker, due to back-off or throttling."""
        connection = self._connections.get(node_id)
        if connection is None:
            return 0
        return max(connection.backoff_ms(now_ms), connection.throttled_until_ms - now_ms, 0)

    def version_of(self, node_id: int, key: ApiKey) -> int | None:
        """Returns the newest version that both sides support; None if there is none, or no
        connection."""
        versions = self._api_versions(node_id)
        return None if versions is None else versions.newest(key)

    def features_of(self, node_id: int) -> Mapping[str, int]:
        """Returns the finalized features that this broker reported when it was connected."""
        versions = self._api_versions(node_id)
        return {} if versions is None else versions.features

    def supported_versions(self, node_id: int) -> Mapping[int, tuple[int, int]]:
        """Returns the lowest and highest version of each API that this broker supports."""
        versions = self._api_versions(node_id)
        return {} if versions is None else versions.ranges

    def add_node(self, node: Node) -> None:
        """Adds a broker that a response named and that the metadata may not contain yet."""
        if node.id not in self.metadata.cluster.nodes and node.id not in self._connections:
            self._connections[node.id] = NodeConnection(node, self._context)

    def disconnect(self, node_id: int, error: KafkaError) -> None:
        """Closes the connection to a broker, if there is one; requests in flight fail with
        `error`."""
        connection = self._connections.get(node_id)
        if connection is not None and connection.channel is not None:
            connection.channel.close(error)

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Uses another TLS context for new connections."""
        self.settings = self._context.settings = dataclasses.replace(self.settings, tls=tls)

    def node_of(self, node_id: int) -> Node:
        return self._connection(node_id).node

    def dedicated_connection(self, node_id: int) -> int:
        """Returns the node id of a second connection to the same broker.

        For requests with late responses, such as JoinGroup: a broker handles the requests of a
        connection one after the other, so that a Fetch behind them would wait too.
        """
        node = self._connection(node_id).node
        dedicated_id = _MAX_NODE_ID - node_id
        connection = self._connections.get(dedicated_id)
        if connection is None:
            self._connections[dedicated_id] = NodeConnection(node, self._context)
        elif connection.node != node:
            connection.move(node)
        return dedicated_id

    def least_loaded_node(self, excluded: Collection[int] = ()) -> int:
        """Returns the broker that is likely to respond first, a random one among equals.

        Brokers in `excluded` are chosen only if there is no other.
        """
        now_ms = self.clock.monotonic_ms()
        all_nodes = self.metadata.cluster.nodes
        nodes = [node_id for node_id in all_nodes if node_id not in excluded] or list(all_nodes)
        random.shuffle(nodes)

        def cost(node_id: int) -> tuple[int, int]:
            connection = self._connections.get(node_id)
            if connection is None:
                return 2, 0
            if connection.is_ready and connection.throttled_until_ms <= now_ms:
                return 0, connection.in_flight
            if connection.is_connecting:
                backoff_ms = connection.backoff_ms(now_ms)
                return (3 if backoff_ms else 1), backoff_ms
            wait_ms = self.backoff_ms(node_id, now_ms)
            return (3, wait_ms) if wait_ms else (2, 0)

        return min(nodes, key=cost)

    # --- metadata

    async def request_metadata(
        self, node_id: int, build: Callable[[int], MetadataRequest]
    ) -> MetadataResponse:
        """Requests metadata from one broker without updating `metadata`; see `update_metadata`."""
        return await self.request(node_id, build, MetadataResponse)

    async def update_metadata(self) -> Cluster:
        """Updates the metadata now; concurrent callers share one request.

        Tries every known broker; raises the error of the last one if all fail.
        """
        return await self._metadata_updater().update()

    async def wait_for_topics(self, topics: Iterable[str], deadline_ms: int) -> Cluster:
        """Returns metadata in which all these topics have partitions.

        Raises UnknownTopicError when one does not exist by the deadline (E5), AuthorizationError
        when this client may not see it (E3), or the reason why no broker responds (E6).
        """
        return await self._metadata_updater().wait_for_topics(topics, deadline_ms)

    def _metadata_updater(self) -> MetadataUpdater:
        if self._updater is None:
            raise IllegalStateError("this network client has no metadata settings")
        return self._updater

    # --- connections

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_CHECK_S)
            now_ms = self.clock.monotonic_ms()
            for connection in list(self._connections.values()):
                connection.close_if_idle(now_ms)

    def _connected(self, node_id: int) -> tuple[NodeConnection, Channel]:
        connection = self._connection(node_id)
        channel = connection.channel
        if channel is None:
            raise DisconnectError(f"there is no connection to broker {connection.node}")
        return connection, channel

    def _connection(self, node_id: int) -> NodeConnection:
        if self._is_closed:
            raise IllegalStateError("this client is closed", remedy="create a new one")
        connection = self._connections.get(node_id)
        if connection is None:
            node = self.metadata.cluster.nodes.get(node_id) or self.metadata.bootstrap.get(node_id)
            if node is None:
                raise DisconnectError(f"broker {node_id} is not in the cluster at present")
            connection = self._connections[node_id] = NodeConnection(node, self._context)
        return connection

    def _api_versions(self, node_id: int) -> NodeApiVersions | None:
        connection = self._connections.get(node_id)
        if connection is None or connection.channel is None:
            return None
        return connection.channel.connection.api_versions

    def _on_response(self, connection: NodeConnection, future: "asyncio.Future[R]") -> None:
        if future.cancelled() or future.exception() is not None:
            return
        self._connection_errors.pop(connection.node.id, None)
        throttle_ms = getattr(future.result(), "throttle_time_ms", 0)
        if throttle_ms > 0:
            until_ms = self.clock.monotonic_ms() + throttle_ms
            connection.throttled_until_ms = max(connection.throttled_until_ms, until_ms)

    def _on_disconnect(self, node_id: int, error: KafkaError) -> None:
        self._connection_errors[node_id] = error
        self.metadata.request_update()

    def _on_metadata_update(self, old: Cluster, new: Cluster) -> None:
        self._connection_errors = {
            node_id: error
            for node_id, error in self._connection_errors.items()
            if node_id in new.nodes
        }
        for node_id, node in new.nodes.items():
            connection = self._connections.get(node_id)
            if connection is not None and connection.node != node:
                connection.move(node)


def _versioned(
    channel: Channel, message: Request, response_type: type[Message], low: int, high: int | None
) -> tuple[Message, int]:
    key = response_type.INFO.key
    assert key is not None
    version = channel.connection.version_for(ApiKey(key), low, high)
    return message if isinstance(message, Message) else message(version), version
