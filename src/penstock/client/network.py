"""Requests to brokers: connections, versions, metadata. The only I/O of the clients.

A `Network` belongs to one event loop. It connects when a request needs it, waits between failures
with growing gaps, picks the newest version that both sides know, obeys throttling and keeps the
metadata fresh. What to ask whom, and again, is its callers' business.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from penstock.client.backoff import Backoff
from penstock.client.cluster import Cluster, ClusterMetadata, Node
from penstock.client.errors import (
    ConfigError,
    DisconnectError,
    IllegalStateError,
    KafkaTimeoutError,
)
from penstock.client.link import Link
from penstock.client.metadata_updater import MetadataUpkeep
from penstock.client.network_metrics import NetworkMetrics
from penstock.client.peer import Peer, Surroundings
from penstock.client.settings import CommonOptions, servers
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

R = TypeVar("R", bound=Message)
Result = TypeVar("Result")

_IDLE_CHECK_S: Final = 10.0
_LARGEST_ID: Final = 2**31 - 1


class Build(NamedTuple):
    """A request whose content depends on the version that is chosen."""

    request: type[Message]
    make: Callable[[int], Message]


class Network:
    """All brokers of a cluster, as one client sees them. Made and used on one event loop."""

    def __init__(
        self,
        settings: CommonOptions,
        *,
        clock: Clock,
        metrics: NetworkMetrics | None = None,
        auto_create_topics: bool = False,
        metadata_max_idle_ms: int | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.metadata = ClusterMetadata(
            _bootstrap(servers(settings)),
            max_age_ms=settings["metadata_max_age_ms"],
            max_idle_ms=metadata_max_idle_ms,
        )
        self.retry = Backoff(settings["retry_backoff_ms"], settings["retry_backoff_max_ms"])
        self._around = _surroundings(settings, clock, metrics, self._disconnected)
        self._peers: dict[int, Peer] = {}
        self._upkeep = MetadataUpkeep(
            self,
            auto_create_topics=auto_create_topics,
            rebootstrap_after_ms=settings["metadata_recovery_rebootstrap_trigger_ms"]
            if settings["metadata_recovery_strategy"] == "rebootstrap"
            else None,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False
        self._failures: dict[int, KafkaError] = {}
        """Why there is no connection to a broker, until it answers."""
        self.metadata.listeners.append(self._moved)

    async def start(self) -> None:
        """Begin to keep metadata fresh. Connections are made when they are needed."""
        self._tasks = [
            asyncio.ensure_future(self._upkeep.run()),
            asyncio.ensure_future(self._close_idle()),
        ]

    async def close(self) -> None:
        """Close all connections; requests that wait fail. May be called twice."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upkeep.close()
        for peer in self._peers.values():
            await peer.close()

    # Requests

    async def request(
        self,
        node_id: int,
        message: Message | Build,
        answer: type[R],
        *,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> R:
        """Ask a broker, in the newest version that both sides know, and wait for the answer.

        Connects first where there is no connection. `timeout_ms` is `request_timeout_ms` unless
        given; when it passes, the connection is given up, as nobody knows what it is good for.

        DisconnectError: not connected, or not any more. KafkaTimeoutError: no answer in time.
        AuthenticationError and UnsupportedVersionError will not go away by trying again.
        """
        future = await self.send(
            node_id,
            message,
            answer,
            timeout_ms=timeout_ms,
            min_version=min_version,
            max_version=max_version,
        )
        return await future

    async def send(
        self,
        node_id: int,
        message: Message | Build,
        answer: type[R],
        *,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> "asyncio.Future[R]":
        """Like `request`, but comes back as soon as the request is written.

        Requests to a broker are written in the order of the calls; their answers come in it too.
        """
        await self._ready(node_id)
        return self.send_now(
            node_id,
            message,
            answer,
            timeout_ms=timeout_ms,
            min_version=min_version,
            max_version=max_version,
        )

    def send_now(
        self,
        node_id: int,
        message: Message | Build,
        answer: type[R],
        *,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> "asyncio.Future[R]":
        """Like `send`, on the connection that there is: see `is_ready`. Never waits."""
        peer, link = self._connected(node_id)
        request, version = _versioned(link, message, min_version, max_version)
        if timeout_ms is None:
            timeout_ms = self.settings["request_timeout_ms"]
        future = link.send(request, version, answer, timeout_ms)
        future.add_done_callback(lambda done: self._note_throttling(peer, done))
        return future

    def send_unanswered_now(self, node_id: int, message: Message | Build) -> None:
        """Write a request that is not answered, Produce with acks=0, on the connection there is."""
        _, link = self._connected(node_id)
        link.send_unanswered(*_versioned(link, message, 0, None))

    async def ready(self, node_id: int) -> None:
        """Wait for a connection to this broker; raises what `request` would."""
        await self._ready(node_id)

    def is_ready(self, node_id: int) -> bool:
        """Whether a request could be written now, without waiting."""
        peer = self._peers.get(node_id)
        if peer is None or not peer.is_ready:
            return False
        return peer.throttled_until_ms <= self.clock.monotonic_ms()

    def in_flight(self, node_id: int) -> int:
        peer = self._peers.get(node_id)
        return 0 if peer is None else peer.in_flight

    def backoff_ms(self, node_id: int, now_ms: int) -> int:
        """How long no connection to this broker will be tried, or no request sent to it."""
        peer = self._peers.get(node_id)
        if peer is None:
            return 0
        return max(peer.backoff_ms(now_ms), peer.throttled_until_ms - now_ms, 0)

    def version_of(self, node_id: int, key: ApiKey) -> int | None:
        """The newest version that both sides know; None without a connection, or without one."""
        peer = self._peers.get(node_id)
        if peer is None or peer.link is None:
            return None
        return peer.link.connection.served.newest(key)

    def features_of(self, node_id: int) -> Mapping[str, int]:
        """The finalized features of the cluster, as this broker said when it was connected."""
        peer = self._peers.get(node_id)
        if peer is None or peer.link is None:
            return {}
        return peer.link.connection.served.features

    def served_versions(self, node_id: int) -> Mapping[int, tuple[int, int]]:
        """The versions of each API that this broker said it serves."""
        peer = self._peers.get(node_id)
        if peer is None or peer.link is None:
            return {}
        return peer.link.connection.served.ranges

    def learn(self, node: Node) -> None:
        """Take a broker that an answer named, which the metadata may not know yet."""
        if node.id not in self.metadata.cluster.nodes and node.id not in self._peers:
            self._peers[node.id] = Peer(node, self._around)

    def node_of(self, node_id: int) -> Node:
        """A broker that the metadata or an answer has named."""
        return self._peer(node_id).node

    def apart(self, node_id: int) -> int:
        """The id of another connection to the same broker.

        For requests that are answered late, such as JoinGroup: brokers deal with the requests of a
        connection one after the other, so that a Fetch behind it would wait as well.
        """
        node = self._peer(node_id).node
        other = _LARGEST_ID - node_id
        peer = self._peers.get(other)
        if peer is None:
            self._peers[other] = Peer(node, self._around)
        elif peer.node != node:
            peer.move(node)
        return other

    def disconnect(self, node_id: int, error: KafkaError) -> None:
        """Give the connection to this broker up."""
        peer = self._peers.get(node_id)
        if peer is not None and peer.link is not None:
            peer.link.close(error)

    def least_loaded(self, passing_over: Collection[int] = ()) -> int:
        """The broker that is likely to answer first; of equals, one by chance.

        Those to pass over are chosen only where there is no other.
        """
        now_ms = self.clock.monotonic_ms()
        known = self.metadata.cluster.nodes
        nodes = [each for each in known if each not in passing_over] or list(known)
        random.shuffle(nodes)

        def cost(node_id: int) -> tuple[int, int]:
            peer = self._peers.get(node_id)
            if peer is None:
                return 2, 0
            if peer.is_ready and peer.throttled_until_ms <= now_ms:
                return 0, peer.in_flight
            if peer.is_connecting:
                return (3 if peer.backoff_ms(now_ms) else 1), peer.backoff_ms(now_ms)
            waiting = self.backoff_ms(node_id, now_ms)
            return (3, waiting) if waiting else (2, 0)

        return min(nodes, key=cost)

    async def ask_any(
        self,
        message: Message | Build,
        answer: type[R],
        *,
        deadline_ms: int,
        min_version: int = 0,
    ) -> R:
        """Ask some broker; when one does not answer, another, until the deadline."""
        attempts = 0
        while True:
            try:
                return await self.within(
                    deadline_ms,
                    lambda: self.request(
                        self.least_loaded(), message, answer, min_version=min_version
                    ),
                )
            except KafkaError as error:
                await self.pause_after(error, attempts, deadline_ms)
            attempts += 1

    async def within(self, deadline_ms: int, call: Callable[[], Awaitable[Result]]) -> Result:
        """Do it before the deadline, or KafkaTimeoutError."""
        left_ms = deadline_ms - self.clock.monotonic_ms()
        if left_ms <= 0:
            raise self.too_late("the time for this call has run out")
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await call()
        except TimeoutError:
            raise self.too_late(
                "the time for this call has run out while waiting for a broker"
            ) from None

    def too_late(self, message: str) -> KafkaTimeoutError:
        """The error of a call whose time is up, with what keeps brokers from being reached."""
        reasons = " ".join(each.message for each in self._failures.values())
        return KafkaTimeoutError(f"{message}: {reasons}" if reasons else message)

    async def pause_after(self, error: KafkaError, attempts: int, deadline_ms: int) -> None:
        """Wait before the next attempt. Raises `error` where another attempt makes no sense, or
        would begin after the deadline."""
        if not error.code.retriable or isinstance(error, ConfigError | IllegalStateError):
            raise error
        delay_ms = self.retry.delay_ms(attempts)
        if self.clock.monotonic_ms() + delay_ms >= deadline_ms:
            raise error
        await asyncio.sleep(delay_ms / 1000)

    # Metadata

    async def ask_metadata(
        self, node_id: int, make: Callable[[int], MetadataRequest]
    ) -> MetadataResponse:
        """Ask one broker; `update_metadata` is for everybody else."""
        return await self.request(node_id, Build(MetadataRequest, make), MetadataResponse)

    async def update_metadata(self) -> Cluster:
        """Ask for metadata now; callers at the same time share the answer.

        Every known broker is tried; the error of the last one is raised when none answers.
        """
        return await self._upkeep.update()

    async def wait_for_topics(self, topics: Iterable[str], deadline_ms: int) -> Cluster:
        """Metadata in which all these topics have partitions.

        UnknownTopicError where one does not exist by the deadline (E5), AuthorizationError where
        this client may not see it (E3), whatever keeps brokers from answering otherwise (E6).
        """
        return await self._upkeep.wait_for_topics(topics, deadline_ms)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_CHECK_S)
            now_ms = self.clock.monotonic_ms()
            for peer in list(self._peers.values()):
                peer.close_if_idle(now_ms)

    # Connections

    async def _ready(self, node_id: int) -> tuple[Peer, Link]:
        peer = self._peer(node_id)
        link = peer.link
        if link is None or not peer.is_ready:
            link = await peer.ready()
        while True:
            wait_ms = peer.throttled_until_ms - self.clock.monotonic_ms()
            if wait_ms <= 0:
                return peer, link
            await asyncio.sleep(wait_ms / 1000)
            link = await peer.ready()

    def _connected(self, node_id: int) -> tuple[Peer, Link]:
        peer = self._peer(node_id)
        link = peer.link
        if link is None:
            raise DisconnectError(f"there is no connection to broker {peer.node}")
        return peer, link

    def _peer(self, node_id: int) -> Peer:
        if self._is_closed:
            raise IllegalStateError("this client is closed: make a new one")
        peer = self._peers.get(node_id)
        if peer is None:
            node = self.metadata.cluster.nodes.get(node_id) or self.metadata.bootstrap.get(node_id)
            if node is None:
                raise DisconnectError(f"broker {node_id} is not in the cluster at present")
            peer = self._peers[node_id] = Peer(node, self._around)
        return peer

    def _note_throttling(self, peer: Peer, done: "asyncio.Future[R]") -> None:
        if done.cancelled() or done.exception() is not None:
            return
        self._failures.pop(peer.node.id, None)
        throttle_ms = getattr(done.result(), "throttle_time_ms", 0)
        if throttle_ms > 0:
            until = self.clock.monotonic_ms() + throttle_ms
            peer.throttled_until_ms = max(peer.throttled_until_ms, until)

    def _disconnected(self, node_id: int, error: KafkaError) -> None:
        self._failures[node_id] = error
        self.metadata.request_update()

    def _moved(self, old: Cluster, new: Cluster) -> None:
        self._failures = {each: why for each, why in self._failures.items() if each in new.nodes}
        for node_id, node in new.nodes.items():
            peer = self._peers.get(node_id)
            if peer is not None and peer.node != node:
                peer.move(node)


def _versioned(
    link: Link, message: Message | Build, low: int, high: int | None
) -> tuple[Message, int]:
    kind = message.request if isinstance(message, Build) else type(message)
    key = kind.INFO.key
    assert key is not None
    version = link.connection.version_for(ApiKey(key), low, high)
    return (message.make(version) if isinstance(message, Build) else message), version


def _surroundings(
    settings: CommonOptions,
    clock: Clock,
    metrics: NetworkMetrics | None,
    on_disconnect: Callable[[int, KafkaError], None],
) -> Surroundings:
    if settings["security_protocol"] == "PLAINTEXT":
        return Surroundings(settings, clock, on_disconnect=on_disconnect, metrics=metrics)
    # Imported here because most clients of a test or a laptop need neither.
    from penstock.client.login import login_of
    from penstock.client.tls import client_context, server_hostname

    return Surroundings(
        settings,
        clock,
        on_disconnect=on_disconnect,
        metrics=metrics,
        tls=client_context(settings),
        tls_name=server_hostname,
        login=login_of(settings),
    )


def _bootstrap(addresses: list[str]) -> list[Node]:
    nodes = []
    for index, address in enumerate(addresses):
        host, colon, port = address.rpartition(":")
        if "://" in host:
            host = host.split("://", 1)[1]
        if not colon or not port.isdigit() or not 0 < int(port) < 65536 or not host:
            raise ConfigError(
                f"bootstrap_servers has {address!r}: it must be host:port, such as localhost:9092"
            )
        nodes.append(Node(-1 - index, host.removeprefix("[").removesuffix("]"), int(port)))
    if not nodes:
        raise ConfigError("bootstrap_servers is empty: name a broker, such as localhost:9092")
    return nodes
