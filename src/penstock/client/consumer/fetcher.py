"""Fetch requests ahead of the polls, one request per broker at a time.

A partition is fetched from the end of its buffered data, so that the next response is under way
while the caller processes the last one. At most two responses per partition are buffered, and
`fetch_max_bytes` in total.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.client.consumer.completed_fetch import CompletedFetch, FetchConfig
from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.consumer.fetch_metrics import FetchMetrics
from penstock.client.consumer.fetch_session import (
    FetchRequestData,
    FetchSessionHandler,
    PartitionRequest,
)
from penstock.client.consumer.offset_fetcher import VALIDATION_VERSION
from penstock.client.consumer.positions import FetchPosition, LeaderAndEpoch
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.errors import AuthenticationError, IllegalStateError
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster, Node
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.fetch import FetchPartitionData, FetchRequest, FetchResponse

logger = logging.getLogger(__name__)

MAX_BUFFERED_FETCHES: Final = 2
"""Fetches of a partition that may be buffered: one to work on, one after it."""

_LAST_VERSION_WITH_NAMES: Final = 12
_MIN_PERIOD_MS: Final = 10
"""Between requests without new records, however short `fetch_max_wait_ms` is."""

_STALE_METADATA_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_RETRIED_ERRORS: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


class Fetcher:
    """Fetches from all brokers that lead assigned partitions, in tasks on the client's loop."""

    def __init__(
        self,
        network: NetworkClient,
        subscriptions: SubscriptionState,
        buffer: FetchBuffer,
        settings: ConsumerOptions,
        config: FetchConfig,
        metrics: FetchMetrics,
        *,
        on_fetched: Callable[[bool], None],
        on_error: Callable[[KafkaError], None],
        on_end: "Callable[[asyncio.Task[None]], None]",
    ) -> None:
        """Takes the callbacks of the driver.

        `on_fetched` is called after each response, with whether poll has something to return;
        `on_end` with each finished task.
        """
        self._network = network
        self._subscriptions = subscriptions
        self._buffer = buffer
        self._settings = settings
        self._config = config
        self._metrics = metrics
        self._on_fetched = on_fetched
        self._on_error = on_error
        self._on_end = on_end
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._retry_at_ms: dict[TopicPartition | int, int] = {}
        """When a partition, or a broker, may be fetched from again after a failure."""

    def send_fetches(self, now_ms: int) -> int | None:
        """Sends the requests that are due; returns the time in ms until the next call, or None."""
        if self._buffer.size >= self._settings["fetch_max_bytes"]:
            return None
        self._retry_at_ms = {key: at for key, at in self._retry_at_ms.items() if at > now_ms}
        plans, delays = self._plan(now_ms)
        for node, partitions in plans.items():
            delay = max(
                self._retry_at_ms.get(node, 0) - now_ms, self._network.backoff_ms(node, now_ms)
            )
            if delay > 0:
                delays.append(delay)
                continue
            session = self._sessions.setdefault(node, FetchSessionHandler())
            task = asyncio.ensure_future(self._fetch(node, session, session.build(partitions)))
            task.add_done_callback(self._on_end)
            self._in_flight[node] = task
        return min(delays, default=None)

    def update_leaders(self, cluster: Cluster) -> None:
        """Notes the leaders in new metadata; positions with a new leader must be validated."""
        for partition in self._subscriptions.assigned_partitions():
            self._update_leader(cluster, partition)

    async def close(self) -> None:
        """Cancels all requests, and ends the sessions with connected brokers."""
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ending = [
            self._end_session(node, session)
            for node, session in self._sessions.items()
            if session.session_id and self._network.is_ready(node)
        ]
        await asyncio.gather(*ending, return_exceptions=True)

    def _plan(
        self, now_ms: int
    ) -> tuple[dict[int, dict[TopicPartition, PartitionRequest]], list[int]]:
        cluster = self._network.metadata.cluster
        buffered = self._buffer.by_partition()
        plans: dict[int, dict[TopicPartition, PartitionRequest]] = {}
        delays: list[int] = []
        full_nodes: set[int] = set()
        for partition in self._subscriptions.fetchable_partitions():
            position = self._position(cluster, partition)
            if position is None:
                continue
            node = self._broker_for(cluster, partition, position, now_ms)
            if node is None:
                self._network.metadata.request_update()
                continue
            offset, count = end_of_chain(position.offset, buffered.get(partition, ()))
            if count < 0:
                continue
            if count >= MAX_BUFFERED_FETCHES:
                # A request without this partition would remove it from the session.
                full_nodes.add(node)
            elif (retry_at_ms := self._retry_at_ms.get(partition)) is not None:
                delays.append(retry_at_ms - now_ms)
            elif node not in self._in_flight:
                topic = cluster.topics.get(partition.topic)
                plans.setdefault(node, {})[partition] = PartitionRequest(
                    ZERO_UUID if topic is None else topic.topic_id,
                    offset,
                    self._settings["max_partition_fetch_bytes"],
                    position.leader.epoch,
                )
        return {node: plans[node] for node in plans.keys() - full_nodes}, delays

    def _position(self, cluster: Cluster, partition: TopicPartition) -> FetchPosition | None:
        position = self._subscriptions.fetch_position(partition)
        if position is not None and position.leader.leader < 0:
            self._update_leader(cluster, partition)
            position = self._subscriptions.fetch_position(partition)
        return position

    def _update_leader(self, cluster: Cluster, partition: TopicPartition) -> None:
        info = cluster.partition(partition)
        if info is None:
            return
        version = self._network.version_of(info.leader, ApiKey.OFFSET_FOR_LEADER_EPOCH)
        is_connected = self._network.is_ready(info.leader)
        self._subscriptions.maybe_validate_position(
            partition,
            LeaderAndEpoch(info.leader, info.leader_epoch),
            can_validate=not is_connected or (version or 0) >= VALIDATION_VERSION,
        )

    def _broker_for(
        self, cluster: Cluster, partition: TopicPartition, position: FetchPosition, now_ms: int
    ) -> int | None:
        """Returns the broker to read from: the preferred replica or the leader."""
        preferred = self._subscriptions.preferred_replica(partition, now_ms)
        if preferred >= 0:
            info = cluster.partition(partition)
            if preferred in cluster.nodes and (info is None or preferred not in info.offline):
                return preferred
            self._subscriptions.clear_preferred_replica(partition)
            self._network.metadata.request_update()
        leader = position.leader.leader
        return leader if leader in cluster.nodes else None

    async def _fetch(
        self, node: int, session: FetchSessionHandler, request: FetchRequestData
    ) -> None:
        clock = self._network.clock
        started_ms = clock.monotonic_ms()
        has_result = False
        try:
            response = await self._network.request(
                node,
                lambda version: self._message(request, version),
                FetchResponse,
                max_version=None if request.uses_topic_ids else _LAST_VERSION_WITH_NAMES,
            )
            now_ms = clock.monotonic_ms()
            self._metrics.latency.record(now_ms - started_ms)
            self._metrics.throttle.record(response.throttle_time_ms)
            data = session.handle_response(response)
            if data is None:
                self._handle_invalid_session(node, response, now_ms)
            else:
                has_result = self._handle_data(request, response, data, now_ms)
            if not has_result:
                self._retry_at_ms.setdefault(node, started_ms + _MIN_PERIOD_MS)
        except KafkaError as error:
            self._handle_error(node, session, error)
        finally:
            del self._in_flight[node]
        self._on_fetched(has_result)

    def _message(self, request: FetchRequestData, version: int) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings["fetch_max_wait_ms"],
            min_bytes=settings["fetch_min_bytes"],
            max_bytes=settings["fetch_max_bytes"],
            isolation_level=int(self._config.read_committed),
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=request.topics(),
            forgotten_topics_data=request.forgotten_topics(version),
            rack_id=settings["client_rack"],
        )

    def _handle_data(
        self,
        request: FetchRequestData,
        response: FetchResponse,
        data_by_partition: Mapping[TopicPartition, FetchPartitionData],
        now_ms: int,
    ) -> bool:
        """Returns whether poll has something to return or to raise."""
        has_result = False
        size = 0
        nodes = [
            Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            for endpoint in response.node_endpoints
        ]
        for partition, data in data_by_partition.items():
            if data.error_code:
                has_result |= self._handle_partition_error(request, partition, data, nodes, now_ms)
                continue
            self._subscriptions.update_watermarks(
                partition, data.high_watermark, data.last_stable_offset, data.log_start_offset
            )
            if data.preferred_read_replica >= 0:
                self._subscriptions.set_preferred_replica(
                    partition,
                    data.preferred_read_replica,
                    now_ms + self._settings["metadata_max_age_ms"],
                )
            if data.records:
                fetch = self._add_to_buffer(request, partition, data)
                size += fetch.size
                has_result = True
        if size:
            self._metrics.bytes.record(size)
        return has_result

    def _add_to_buffer(
        self, request: FetchRequestData, partition: TopicPartition, data: FetchPartitionData
    ) -> CompletedFetch:
        offset = request.partitions[partition].fetch_offset
        fetch = CompletedFetch(partition, offset, data, self._config)
        self._subscriptions.move_to_end(partition)
        self._buffer.add(fetch)
        return fetch

    def _handle_partition_error(
        self,
        request: FetchRequestData,
        partition: TopicPartition,
        data: FetchPartitionData,
        nodes: Sequence[Node],
        now_ms: int,
    ) -> bool:
        """Returns whether poll must raise the error."""
        code = data.error_code
        self._subscriptions.move_to_end(partition)
        if code != ErrorCode.OFFSET_OUT_OF_RANGE:
            self._retry_at_ms[partition] = now_ms + self._settings["retry_backoff_ms"]
        if code in _STALE_METADATA_ERRORS:
            logger.debug("%s: %s", partition, ErrorCode(code).name)
            self._subscriptions.clear_preferred_replica(partition)
            leader = data.current_leader
            metadata = self._network.metadata
            if leader.leader_id >= 0 and metadata.update_leader(
                partition, leader.leader_id, leader.leader_epoch, nodes
            ):
                self._retry_at_ms.pop(partition, None)
            else:
                metadata.request_update()
            return False
        if code in _RETRIED_ERRORS:
            # The first one is usual for a moment: the broker does not know of its election yet.
            is_usual = code == ErrorCode.UNKNOWN_LEADER_EPOCH
            level = logging.DEBUG if is_usual else logging.WARNING
            logger.log(level, "%s: fetch failed with %s", partition, ErrorCode(code).name)
            return False
        self._add_to_buffer(request, partition, data)
        return True

    def _handle_invalid_session(self, node: int, response: FetchResponse, now_ms: int) -> None:
        if response.error_code in (
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ):
            self._network.metadata.request_update()
        self._retry_at_ms[node] = now_ms + _MIN_PERIOD_MS

    def _handle_error(self, node: int, session: FetchSessionHandler, error: KafkaError) -> None:
        session.handle_error()
        for partition in session.partitions:
            self._subscriptions.clear_preferred_replica(partition)
        now_ms = self._network.clock.monotonic_ms()
        self._retry_at_ms[node] = now_ms + self._settings["retry_backoff_ms"]
        if isinstance(error, IllegalStateError):
            return
        if isinstance(error, AuthenticationError | UnsupportedVersionError):
            self._on_error(error)
            return
        logger.debug("fetch from broker %d failed: %s", node, error.message)
        self._network.metadata.request_update()

    async def _end_session(self, node: int, session: FetchSessionHandler) -> None:
        """Sends the last request of the session without waiting for its response."""
        request = session.closing_request()
        await self._network.send(
            node,
            lambda version: self._message(request, version),
            FetchResponse,
            max_version=None if request.uses_topic_ids else _LAST_VERSION_WITH_NAMES,
        )


def end_of_chain(offset: int, fetches: Sequence[CompletedFetch]) -> tuple[int, int]:
    """Returns the next offset to fetch, and the number of fetches between it and `offset`.

    The number is -1 when the next fetch is an error, which poll must raise first. Fetches that do
    not join the others were made before a seek and do not count.
    """
    count = 0
    for fetch in fetches:
        is_next = (
            fetch.start_offset == offset
            if count
            else (fetch.start_offset <= offset <= fetch.end_offset)
        )
        if not is_next:
            continue
        if fetch.error_code:
            return offset, -1
        offset = fetch.end_offset
        count += 1
    return offset, count
