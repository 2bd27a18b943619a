"""Requests for offsets to the leaders of partitions: by time, and the ends of leader epochs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from penstock.client.consumer.positions import FetchPosition
from penstock.client.consumer.record import OffsetAndTimestamp
from penstock.client.errors import KafkaTimeoutError, UnknownTopicError, error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger(__name__)

CONSUMER_REPLICA_ID: Final = -1
VALIDATION_VERSION: Final = 3
"""The first version of OffsetForLeaderEpoch that the right to DESCRIBE suffices for."""

_FIRST_WITH_ONE_OFFSET: Final = 1
_FIRST_WITH_ISOLATION: Final = 2

V = TypeVar("V")


class EpochEnd(NamedTuple):
    """The end of the requested epoch, or of the one before it; -1 if the leader has neither."""

    epoch: int
    end_offset: int


class ListOffsetsResult(NamedTuple):
    """The offsets of one response, and the partitions to request again."""

    offsets: dict[TopicPartition, OffsetAndTimestamp]
    retry: set[TopicPartition]


class OffsetFetcher:
    """Sends ListOffsets and OffsetForLeaderEpoch requests to the leaders of partitions."""

    def __init__(self, network: NetworkClient, *, read_committed: bool) -> None:
        self._network = network
        self._isolation = int(read_committed)

    async def fetch_offsets(
        self, timestamps: Mapping[TopicPartition, int], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns the first offset at or after each time (-2: earliest, -1: latest).

        Retries until all leaders have responded. Partitions without such a record are left out.
        Raises KafkaTimeoutError, which names the partitions without a response.
        """
        network = self._network
        remaining = dict(timestamps)
        offsets: dict[TopicPartition, OffsetAndTimestamp] = {}
        attempts = 0
        while remaining:
            topics = {partition.topic for partition in remaining}
            cluster = await network.wait_for_topics(topics, deadline_ms)
            _check_existence(cluster, remaining)
            failure: KafkaError = KafkaTimeoutError(
                f"no leader has responded for {', '.join(sorted(map(str, remaining)))} in time",
                remedy="check that the brokers are up and the partitions have leaders",
            )
            try:
                result = await network.within(deadline_ms, self._attempt(cluster, remaining))
            except KafkaError as error:
                await network.wait_before_retry(error, attempts, deadline_ms)
            else:
                offsets.update(result.offsets)
                remaining = {partition: remaining[partition] for partition in result.retry}
                if remaining:
                    await network.wait_before_retry(failure, attempts, deadline_ms)
            if remaining:
                network.metadata.request_update()
            attempts += 1
        return {partition: at for partition, at in offsets.items() if at.offset >= 0}

    def _attempt(
        self, cluster: Cluster, timestamps: Mapping[TopicPartition, int]
    ) -> Callable[[], Awaitable[ListOffsetsResult]]:
        async def request_all() -> ListOffsetsResult:
            by_leader, leaderless = group_by_leader(cluster, timestamps)
            results = await asyncio.gather(
                *(self.fetch_from(node, requested) for node, requested in by_leader.items())
            )
            merged = ListOffsetsResult({}, leaderless)
            for result in results:
                merged.offsets.update(result.offsets)
                merged.retry.update(result.retry)
            return merged

        return request_all

    async def fetch_from(
        self, node: int, timestamps: Mapping[TopicPartition, int]
    ) -> ListOffsetsResult:
        """Sends one request to one broker. Raises if it fails or a topic is not authorized."""
        cluster = self._network.metadata.cluster

        def make(version: int) -> ListOffsetsRequest:
            topics: dict[str, ListOffsetsTopic] = {}
            for (topic, number), timestamp in timestamps.items():
                info = cluster.partition(TopicPartition(topic, number))
                topics.setdefault(
                    topic, ListOffsetsTopic(name=topic, partitions=[])
                ).partitions.append(
                    ListOffsetsPartition(
                        partition_index=number,
                        current_leader_epoch=-1 if info is None else info.leader_epoch,
                        timestamp=timestamp,
                    )
                )
            return ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                isolation_level=self._isolation if version >= _FIRST_WITH_ISOLATION else 0,
                topics=list(topics.values()),
                timeout_ms=self._network.settings.request_timeout_ms,
            )

        response = await self._network.request(
            self._idle_connection(node),
            make,
            ListOffsetsResponse,
            min_version=_FIRST_WITH_ONE_OFFSET,
        )
        result = ListOffsetsResult({}, set())
        for topic in response.topics:
            for data in topic.partitions:
                partition = TopicPartition(topic.name, data.partition_index)
                code = data.error_code
                if code == ErrorCode.NONE:
                    result.offsets[partition] = OffsetAndTimestamp(
                        data.offset, data.timestamp, data.leader_epoch
                    )
                elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise _not_authorized(code, topic.name)
                elif code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    # The log has a format without timestamps: no record has the requested time.
                    result.offsets[partition] = OffsetAndTimestamp(-1, -1)
                else:
                    logger.debug("%s: ListOffsets failed with error %d", partition, code)
                    result.retry.add(partition)
        result.retry.update(timestamps.keys() - result.offsets.keys())
        return result

    def _idle_connection(self, node: int) -> int:
        """Returns a connection on which no Fetch waits for records before this request."""
        network = self._network
        return network.dedicated_connection(node) if network.in_flight(node) else node

    async def fetch_epoch_ends(
        self, node: int, positions: Mapping[TopicPartition, FetchPosition]
    ) -> dict[TopicPartition, EpochEnd]:
        """Returns the ends of these positions' epochs, without the partitions to request again."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (topic_name, number), position in positions.items():
            topics.setdefault(
                topic_name, OffsetForLeaderTopic(topic=topic_name, partitions=[])
            ).partitions.append(
                OffsetForLeaderPartition(
                    partition=number,
                    current_leader_epoch=position.leader.epoch,
                    leader_epoch=position.offset_epoch,
                )
            )
        response = await self._network.request(
            self._idle_connection(node),
            OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values())
            ),
            OffsetForLeaderEpochResponse,
            min_version=VALIDATION_VERSION,
        )
        ends: dict[TopicPartition, EpochEnd] = {}
        for topic in response.topics:
            for data in topic.partitions:
                if data.error_code == ErrorCode.NONE:
                    partition = TopicPartition(topic.topic, data.partition)
                    ends[partition] = EpochEnd(data.leader_epoch, data.end_offset)
                elif data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise _not_authorized(data.error_code, topic.topic)
        return ends


def group_by_leader(
    cluster: Cluster, values: Mapping[TopicPartition, V]
) -> tuple[dict[int, dict[TopicPartition, V]], set[TopicPartition]]:
    """Returns the values by leader and partition, and the partitions without a leader."""
    by_leader: dict[int, dict[TopicPartition, V]] = {}
    leaderless: set[TopicPartition] = set()
    for partition, value in values.items():
        leader = cluster.leader(partition)
        if leader is None:
            leaderless.add(partition)
        else:
            by_leader.setdefault(leader.id, {})[partition] = value
    return by_leader, leaderless


def _check_existence(cluster: Cluster, partitions: Mapping[TopicPartition, int]) -> None:
    for partition in partitions:
        count = cluster.partition_count(partition.topic)
        if count is not None and not 0 <= partition.partition < count:
            raise UnknownTopicError(
                f"{partition} does not exist: topic {partition.topic} has {count} partitions"
            )


def _not_authorized(code: int, topic: str) -> KafkaError:
    return error_of(
        code, f"this client may not read topic {topic}; its user needs the ACL DESCRIBE on it"
    )
