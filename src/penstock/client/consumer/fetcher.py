"""Fetching ahead: what to ask which broker, one request per broker at a time.

A partition is fetched on from the end of what is buffered of it, so that the next answer is on its
way while the user works on the last. Two answers per partition are the limit, and `fetch_max_bytes`
for all of them together.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.client.consumer.consumer_metrics import ConsumerMetrics
from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.consumer.fetch_session import FetchSession, PartitionRequest, SessionRequest
from penstock.client.consumer.fetched import CompletedFetch, Decoding
from penstock.client.consumer.list_offsets import VALIDATION_VERSION
from penstock.client.consumer.positions import FetchPosition, LeaderAndEpoch
from penstock.client.consumer.subscriptions import SubscriptionState
from penstock.client.errors import AuthenticationError, IllegalStateError
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster, Node
from penstock.net.client.network_client import NetworkClient, RequestBuilder
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.fetch import FetchPartitionData, FetchRequest, FetchResponse

logger = logging.getLogger(__name__)

DEPTH: Final = 2
"""Answers of a partition that may wait: one to work on, one behind it."""

_LAST_VERSION_WITH_NAMES: Final = 12
_LEAST_PERIOD_MS: Final = 10
"""Between requests that bring nothing, however short `fetch_max_wait_ms` is."""

_STALE_METADATA: Final = frozenset(
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
_ASK_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


class Fetcher:
    """Belongs to the client's loop. `pump` starts what is due; nothing else starts anything."""

    def __init__(
        self,
        network: NetworkClient,
        subscriptions: SubscriptionState,
        buffer: FetchBuffer,
        settings: ConsumerOptions,
        decoding: Decoding,
        metrics: ConsumerMetrics,
        *,
        on_fetched: Callable[[bool], None],
        on_error: Callable[[KafkaError], None],
        on_end: "Callable[[asyncio.Task[None]], None]",
    ) -> None:
        """`on_fetched` is called after each answer, with whether there is something for poll;
        `on_end` with each task that is done."""
        self._network = network
        self._subscriptions = subscriptions
        self._buffer = buffer
        self._settings = settings
        self._decoding = decoding
        self._metrics = metrics
        self._on_fetched = on_fetched
        self._on_error = on_error
        self._on_end = on_end
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._not_before: dict[TopicPartition | int, int] = {}
        """When a partition, or a broker, may be asked again after a failure."""

    def pump(self, now_ms: int) -> int | None:
        """Start the requests that are due. In how many ms to call again, if nothing happens."""
        if self._buffer.size >= self._settings["fetch_max_bytes"]:
            return None
        self._not_before = {each: at for each, at in self._not_before.items() if at > now_ms}
        plans, delays = self._plan(now_ms)
        for node, wanted in plans.items():
            delay = max(
                self._not_before.get(node, 0) - now_ms, self._network.backoff_ms(node, now_ms)
            )
            if delay > 0:
                delays.append(delay)
                continue
            session = self._sessions.setdefault(node, FetchSession())
            task = asyncio.ensure_future(self._fetch(node, session, session.build(wanted)))
            task.add_done_callback(self._on_end)
            self._in_flight[node] = task
        return min(delays, default=None)

    def note_leaders(self, cluster: Cluster) -> None:
        """Metadata is new: positions at partitions with a new leader are to be validated."""
        for partition in self._subscriptions.assigned_partitions():
            self._note_leader(cluster, partition)

    async def close(self) -> None:
        """Stop, and end the sessions with brokers that are connected."""
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
        waiting = self._buffer.ahead()
        plans: dict[int, dict[TopicPartition, PartitionRequest]] = {}
        delays: list[int] = []
        full: set[int] = set()
        for partition in self._subscriptions.fetchable_partitions(lambda _: True):
            position = self._position(cluster, partition)
            if position is None:
                continue
            node = self._source(cluster, partition, position, now_ms)
            if node is None:
                self._network.metadata.request_update()
                continue
            offset, fetches = chain(position.offset, waiting.get(partition, ()))
            if fetches < 0:
                continue
            if fetches >= DEPTH:
                # Without it in the request the broker would drop it from the session.
                full.add(node)
            elif (not_before := self._not_before.get(partition)) is not None:
                delays.append(not_before - now_ms)
            elif node not in self._in_flight:
                topic = cluster.topics.get(partition.topic)
                plans.setdefault(node, {})[partition] = PartitionRequest(
                    ZERO_UUID if topic is None else topic.topic_id,
                    offset,
                    self._settings["max_partition_fetch_bytes"],
                    position.leader.epoch,
                )
        return {node: wanted for node, wanted in plans.items() if node not in full}, delays

    def _position(self, cluster: Cluster, partition: TopicPartition) -> FetchPosition | None:
        position = self._subscriptions.fetch_position(partition)
        if position is not None and position.leader.leader < 0:
            self._note_leader(cluster, partition)
            position = self._subscriptions.fetch_position(partition)
        return position

    def _note_leader(self, cluster: Cluster, partition: TopicPartition) -> None:
        known = cluster.partition(partition)
        if known is None:
            return
        version = self._network.version_of(known.leader, ApiKey.OFFSET_FOR_LEADER_EPOCH)
        connected = self._network.is_ready(known.leader)
        self._subscriptions.maybe_validate_position(
            partition,
            LeaderAndEpoch(known.leader, known.leader_epoch),
            can_validate=not connected or (version or 0) >= VALIDATION_VERSION,
        )

    def _source(
        self, cluster: Cluster, partition: TopicPartition, position: FetchPosition, now_ms: int
    ) -> int | None:
        """The broker to read from: the replica that the leader named, or the leader."""
        preferred = self._subscriptions.preferred_replica(partition, now_ms)
        if preferred >= 0:
            known = cluster.partition(partition)
            if preferred in cluster.nodes and (known is None or preferred not in known.offline):
                return preferred
            self._subscriptions.clear_preferred_replica(partition)
            self._network.metadata.request_update()
        leader = position.leader.leader
        return leader if leader in cluster.nodes else None

    async def _fetch(self, node: int, session: FetchSession, request: SessionRequest) -> None:
        clock = self._network.clock
        started_ms = clock.monotonic_ms()
        added = False
        try:
            response = await self._network.request(
                node,
                RequestBuilder(FetchRequest, lambda version: self._message(request, version)),
                FetchResponse,
                max_version=None if request.uses_topic_ids else _LAST_VERSION_WITH_NAMES,
            )
            now_ms = clock.monotonic_ms()
            self._metrics.fetched(now_ms - started_ms, response.throttle_time_ms)
            found = session.answered(response)
            if found is None:
                self._refused(node, response, now_ms)
            else:
                added = self._take(request, response, found, now_ms)
            if not added:
                self._not_before.setdefault(node, started_ms + _LEAST_PERIOD_MS)
        except KafkaError as error:
            self._failed(node, session, error)
        finally:
            del self._in_flight[node]
        self._on_fetched(added)

    def _message(self, request: SessionRequest, version: int) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings["fetch_max_wait_ms"],
            min_bytes=settings["fetch_min_bytes"],
            max_bytes=settings["fetch_max_bytes"],
            isolation_level=int(self._decoding.read_committed),
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=request.topics(),
            forgotten_topics_data=request.forgotten(version),
            rack_id=settings["client_rack"],
        )

    def _take(
        self,
        request: SessionRequest,
        response: FetchResponse,
        found: Mapping[TopicPartition, FetchPartitionData],
        now_ms: int,
    ) -> bool:
        """Whether there is something for poll in it."""
        added = False
        size = 0
        nodes = [
            Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints
        ]
        for partition, data in found.items():
            if data.error_code:
                added |= self._partition_failed(request, partition, data, nodes, now_ms)
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
                fetch = self._completed(request, partition, data)
                size += fetch.size
                added = True
        if size:
            self._metrics.received(size)
        return added

    def _completed(
        self, request: SessionRequest, partition: TopicPartition, data: FetchPartitionData
    ) -> CompletedFetch:
        offset = request.partitions[partition].fetch_offset
        fetch = CompletedFetch(partition, offset, data, self._decoding)
        self._subscriptions.move_to_end(partition)
        self._buffer.add(fetch)
        return fetch

    def _partition_failed(
        self,
        request: SessionRequest,
        partition: TopicPartition,
        data: FetchPartitionData,
        nodes: Sequence[Node],
        now_ms: int,
    ) -> bool:
        """Whether poll has to see the error."""
        code = data.error_code
        self._subscriptions.move_to_end(partition)
        if code != ErrorCode.OFFSET_OUT_OF_RANGE:
            self._not_before[partition] = now_ms + self._settings["retry_backoff_ms"]
        if code in _STALE_METADATA:
            logger.debug("%s: %s", partition, ErrorCode(code).name)
            self._subscriptions.clear_preferred_replica(partition)
            leader = data.current_leader
            metadata = self._network.metadata
            if leader.leader_id >= 0 and metadata.update_leader(
                partition, leader.leader_id, leader.leader_epoch, nodes
            ):
                self._not_before.pop(partition, None)
            else:
                metadata.request_update()
            return False
        if code in _ASK_AGAIN:
            logger.warning("%s: the broker answered with error %d", partition, code)
            return False
        self._completed(request, partition, data)
        return True

    def _refused(self, node: int, response: FetchResponse, now_ms: int) -> None:
        if response.error_code in (
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ):
            self._network.metadata.request_update()
        self._not_before[node] = now_ms + _LEAST_PERIOD_MS

    def _failed(self, node: int, session: FetchSession, error: KafkaError) -> None:
        session.failed()
        for partition in session.partitions:
            self._subscriptions.clear_preferred_replica(partition)
        now_ms = self._network.clock.monotonic_ms()
        self._not_before[node] = now_ms + self._settings["retry_backoff_ms"]
        if isinstance(error, IllegalStateError):
            return
        if isinstance(error, AuthenticationError | UnsupportedVersionError):
            self._on_error(error)
            return
        logger.debug("fetch from broker %d failed: %s", node, error.message)
        self._network.metadata.request_update()

    async def _end_session(self, node: int, session: FetchSession) -> None:
        """Written, and not waited for: the answer comes after that of the fetch that waits."""
        request = session.closing()
        await self._network.send(
            node,
            RequestBuilder(FetchRequest, lambda version: self._message(request, version)),
            FetchResponse,
            max_version=None if request.uses_topic_ids else _LAST_VERSION_WITH_NAMES,
        )


def chain(offset: int, fetches: Sequence[CompletedFetch]) -> tuple[int, int]:
    """Where to fetch on from, and how many of `fetches` lie between there and `offset`.

    -1 of them where the last is an error, which poll has to see before there is more. What does
    not join on to the others is of before a seek and does not count.
    """
    count = 0
    for fetch in fetches:
        joins = (
            fetch.start_offset == offset
            if count
            else (fetch.start_offset <= offset <= fetch.end_offset)
        )
        if not joins:
            continue
        if fetch.error_code:
            return offset, -1
        offset = fetch.end_offset
        count += 1
    return offset, count
