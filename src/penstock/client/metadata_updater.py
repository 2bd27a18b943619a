"""Keeps a client's metadata fresh: asks brokers for it, now or when its time has come."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from penstock.client.backoff import Backoff
from penstock.client.cluster import Cluster, ClusterMetadata, TopicInfo
from penstock.client.errors import (
    DisconnectError,
    KafkaTimeoutError,
    UnknownTopicError,
    error_of,
)
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_BEFORE_FIRST_S = 1.0
"""Until somebody asks for the first time there is nothing to keep fresh."""


class Asks(Protocol):
    """What the upkeep needs of the network."""

    metadata: ClusterMetadata
    clock: Clock
    retry: Backoff

    def least_loaded(self, passing_over: Collection[int] = ()) -> int: ...

    async def ask_metadata(
        self, node_id: int, make: Callable[[int], MetadataRequest]
    ) -> MetadataResponse: ...

    async def within(self, deadline_ms: int, call: Callable[[], Awaitable[Cluster]]) -> Cluster: ...

    async def pause_after(self, error: KafkaError, attempts: int, deadline_ms: int) -> None: ...


class MetadataUpkeep:
    """Updates the metadata of a network. `run` is a task that goes on until it is cancelled."""

    def __init__(
        self, network: Asks, *, auto_create_topics: bool, rebootstrap_after_ms: int | None
    ) -> None:
        """Without `rebootstrap_after_ms` the brokers that were known once are the only ones."""
        self._network = network
        self._metadata = network.metadata
        self._auto_create_topics = auto_create_topics
        self._rebootstrap_after_ms = rebootstrap_after_ms
        self._failing_since_ms: int | None = None
        self._stale = asyncio.Event()
        self._updating: asyncio.Task[Cluster] | None = None
        self._metadata.on_request = self._stale.set

    async def run(self) -> None:
        metadata, clock = self._metadata, self._network.clock
        failures = 0
        while True:
            now_ms = clock.monotonic_ms()
            is_used = metadata.age_ms(now_ms) is not None
            if is_used and metadata.needs_refresh(now_ms):
                try:
                    await self.update()
                    failures = failures + 1 if metadata.needs_refresh(now_ms) else 0
                except KafkaError:
                    failures += 1
                if failures:
                    await asyncio.sleep(self._network.retry.delay_ms(failures - 1) / 1000)
                    continue
            self._stale.clear()
            wait_ms = max(1, metadata.refresh_in_ms(now_ms))
            try:
                async with asyncio.timeout(wait_ms / 1000 if is_used else _BEFORE_FIRST_S):
                    await self._stale.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        task = self._updating
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def update(self) -> Cluster:
        """Ask now; callers at the same time share the answer."""
        if self._updating is None:
            self._updating = asyncio.ensure_future(self._update())
            self._updating.add_done_callback(self._updated)
        return await asyncio.shield(self._updating)

    async def wait_for_topics(self, topics: Iterable[str], deadline_ms: int) -> Cluster:
        """See `Network.wait_for_topics`."""
        network, metadata = self._network, self._metadata
        wanted = tuple(topics)
        attempts = 0
        while True:
            metadata.want(wanted, network.clock.monotonic_ms())
            cluster = metadata.cluster
            missing = [name for name in wanted if cluster.partition_count(name) is None]
            if not missing:
                return cluster
            for name in missing:
                _raise_final(cluster.topics.get(name), name)
            problem: KafkaError = _unknown(missing, self._auto_create_topics)
            try:
                await network.within(deadline_ms, self.update)
                if attempts == 0:
                    # The first answer is looked at before any wait.
                    attempts = 1
                    continue
            except KafkaTimeoutError as error:
                if all(name in cluster.topics for name in missing):
                    raise problem from None
                # No broker has said a word about them: it is not the topics that are wrong.
                raise error from None
            except KafkaError as error:
                problem = error
            await network.pause_after(problem, attempts, deadline_ms)
            attempts += 1

    async def _update(self) -> Cluster:
        network, metadata = self._network, self._metadata
        tried: set[int] = set()
        failure: KafkaError | None = None
        while True:
            node_id = network.least_loaded(tried)
            if node_id in tried:
                if not self._has_other_addresses():
                    break
                metadata.rebootstrap()
                tried.clear()
                node_id = network.least_loaded()
            tried.add(node_id)
            try:
                return await self._ask(node_id)
            except KafkaError as error:
                failure = error
                self._note_failure()
                if error.code is ErrorCode.REBOOTSTRAP_REQUIRED:
                    metadata.rebootstrap()
                    tried.clear()
        assert failure is not None
        raise failure

    async def _ask(self, node_id: int) -> Cluster:
        metadata = self._metadata
        asks_all = metadata.all_topics
        wanted = metadata.wanted
        topics = None if asks_all else [MetadataRequestTopic(name=name) for name in sorted(wanted)]

        def make(version: int) -> MetadataRequest:
            if version == 0:
                # The oldest version has no other way to say "all" than an empty list.
                return MetadataRequest(topics=topics or [])
            return MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=self._auto_create_topics or version < 4,
            )

        response = await self._network.ask_metadata(node_id, make)
        if response.error_code:
            raise error_of(response.error_code, f"broker {node_id} has no metadata")
        if not response.brokers:
            raise DisconnectError(f"broker {node_id} knows no brokers yet: it is starting")
        complete = asks_all or metadata.wanted <= wanted
        metadata.update(response, self._network.clock.monotonic_ms(), complete=complete)
        self._failing_since_ms = None
        return metadata.cluster

    def _note_failure(self) -> None:
        """Brokers that let themselves be connected and never answer are given up in the end."""
        now_ms = self._network.clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        limit = self._rebootstrap_after_ms
        if limit is not None and now_ms - self._failing_since_ms >= limit:
            self._failing_since_ms = now_ms
            self._metadata.rebootstrap()

    def _has_other_addresses(self) -> bool:
        """Whether the bootstrap servers may be tried, after all known brokers have failed."""
        if self._rebootstrap_after_ms is None:
            return False
        return not any(each < 0 for each in self._metadata.cluster.nodes)

    def _updated(self, task: "asyncio.Task[Cluster]") -> None:
        self._updating = None
        # Whoever keeps it fresh looks at the clock anew.
        self._stale.set()
        if not task.cancelled():
            # Seen here, so that it is no unheard error when all who waited have gone.
            task.exception()


def _raise_final(topic: TopicInfo | None, name: str) -> None:
    if topic is None or topic.error is ErrorCode.NONE or topic.error.retriable:
        return
    if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise error_of(
            topic.error,
            f"this client may not use topic {name}: its user needs an ACL for it (operation "
            "Describe, with Read or Write)",
        )
    raise error_of(topic.error, f"topic {name} cannot be used: {topic.error.name}")


def _unknown(missing: list[str], may_create: bool) -> UnknownTopicError:
    names = ", ".join(missing)
    hint = "create it first"
    if may_create:
        hint += ", or set auto.create.topics.enable=true on the broker"
    return UnknownTopicError(f"there is no topic {names}: {hint}")
