"""Keeps the metadata of a cluster fresh: requests it when it is stale or a caller needs it."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.client.cluster import Cluster, TopicInfo
from penstock.net.client.errors import (
    DisconnectError,
    KafkaTimeoutError,
    UnknownTopicError,
    error_of,
)
from penstock.net.client.settings import MetadataSettings
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from penstock.net.client.network_client import NetworkClient

_BEFORE_FIRST_S = 1.0
"""Interval of looking again while no caller has requested metadata yet."""


class MetadataUpdater:
    """Updates the metadata of a `NetworkClient`. `run` continues until it is cancelled."""

    def __init__(self, network: "NetworkClient", settings: MetadataSettings) -> None:
        self._network = network
        self._metadata = network.metadata
        self._auto_create_topics = settings.auto_create_topics
        self._rebootstrap_after_ms = settings.rebootstrap_after_ms
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
                    await asyncio.sleep(self._network.retry_backoff.delay_ms(failures - 1) / 1000)
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
        """Updates the metadata now; concurrent callers share one request."""
        if self._updating is None:
            self._updating = asyncio.ensure_future(self._update())
            self._updating.add_done_callback(self._update_done)
        return await asyncio.shield(self._updating)

    async def wait_for_topics(self, topics: Iterable[str], deadline_ms: int) -> Cluster:
        """See `NetworkClient.wait_for_topics`."""
        network, metadata = self._network, self._metadata
        names = tuple(topics)
        attempts = 0
        while True:
            metadata.add_topics(names, network.clock.monotonic_ms())
            cluster = metadata.cluster
            missing = [name for name in names if cluster.partition_count(name) is None]
            if not missing:
                return cluster
            for name in missing:
                _raise_if_fatal(cluster.topics.get(name), name)
            problem: KafkaError = _unknown_topics(missing, self._auto_create_topics)
            try:
                await network.within(deadline_ms, self.update)
                if attempts == 0:
                    # The first response is used without a wait.
                    attempts = 1
                    continue
            except KafkaTimeoutError as error:
                if all(name in cluster.topics for name in missing):
                    raise problem from None
                # No broker has responded about these topics, so they may well exist.
                raise error from None
            except KafkaError as error:
                problem = error
            await network.wait_before_retry(problem, attempts, deadline_ms)
            attempts += 1

    async def _update(self) -> Cluster:
        network, metadata = self._network, self._metadata
        tried: set[int] = set()
        failure: KafkaError | None = None
        while True:
            node_id = network.least_loaded_node(tried)
            if node_id in tried:
                if not self._can_rebootstrap():
                    break
                metadata.rebootstrap()
                tried.clear()
                node_id = network.least_loaded_node()
            tried.add(node_id)
            try:
                return await self._update_from(node_id)
            except KafkaError as error:
                failure = error
                self._record_failure()
                if error.code is ErrorCode.REBOOTSTRAP_REQUIRED:
                    metadata.rebootstrap()
                    tried.clear()
        assert failure is not None
        raise failure

    async def _update_from(self, node_id: int) -> Cluster:
        metadata = self._metadata
        all_topics = metadata.all_topics
        names = metadata.topics
        topics = None if all_topics else [MetadataRequestTopic(name=name) for name in sorted(names)]

        def build(version: int) -> MetadataRequest:
            if version == 0:
                # In version 0 an empty list stands for all topics.
                return MetadataRequest(topics=topics or [])
            return MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=self._auto_create_topics or version < 4,
            )

        response = await self._network.request_metadata(node_id, build)
        if response.error_code:
            raise error_of(response.error_code, f"broker {node_id} has no metadata")
        if not response.brokers:
            raise DisconnectError(
                f"broker {node_id} is starting and has no brokers in its metadata yet"
            )
        complete = all_topics or metadata.topics <= names
        metadata.update(response, self._network.clock.monotonic_ms(), complete=complete)
        self._failing_since_ms = None
        return metadata.cluster

    def _record_failure(self) -> None:
        """Returns to the bootstrap servers once requests have failed for too long, even if the
        brokers accept connections."""
        now_ms = self._network.clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        limit = self._rebootstrap_after_ms
        if limit is not None and now_ms - self._failing_since_ms >= limit:
            self._failing_since_ms = now_ms
            self._metadata.rebootstrap()

    def _can_rebootstrap(self) -> bool:
        """Whether the bootstrap servers are untried, after all known brokers have failed."""
        if self._rebootstrap_after_ms is None:
            return False
        return not any(node_id < 0 for node_id in self._metadata.cluster.nodes)

    def _update_done(self, task: "asyncio.Task[Cluster]") -> None:
        self._updating = None
        # `run` computes anew when the next update is due.
        self._stale.set()
        if not task.cancelled():
            # Retrieved here, so that asyncio does not log it if no caller waits any more.
            task.exception()


def _raise_if_fatal(topic: TopicInfo | None, name: str) -> None:
    if topic is None or topic.error is ErrorCode.NONE or topic.error.retriable:
        return
    if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise error_of(
            topic.error,
            f"this client may not use topic {name}: its user needs an ACL for it (operation "
            "Describe, with Read or Write)",
        )
    raise error_of(topic.error, f"topic {name} cannot be used: {topic.error.name}")


def _unknown_topics(missing: list[str], can_create: bool) -> UnknownTopicError:
    names = ", ".join(missing)
    hint = "create it first"
    if can_create:
        hint += ", or set auto.create.topics.enable=true on the broker"
    return UnknownTopicError(f"there is no topic {names}: {hint}")
