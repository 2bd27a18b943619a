"""Questions to leaders about offsets: which belongs to a time, and where an epoch ends."""

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
from penstock.net.client.network_client import NetworkClient, RequestBuilder
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
"""Of OffsetForLeaderEpoch: the first that a consumer has the right to ask."""

_FIRST_WITH_ONE_OFFSET: Final = 1
_FIRST_WITH_ISOLATION: Final = 2

V = TypeVar("V")


class EpochEnd(NamedTuple):
    """Where the asked epoch ends, or the one before it; -1 where the leader knows neither."""

    epoch: int
    end_offset: int


class Found(NamedTuple):
    """What one leader said: offsets, and the partitions that are to be asked again."""

    offsets: dict[TopicPartition, OffsetAndTimestamp]
    retry: set[TopicPartition]


class OffsetLookup:
    """Asks each partition's leader. `look_up` goes on until all have answered."""

    def __init__(self, network: NetworkClient, *, read_committed: bool) -> None:
        self._network = network
        self._isolation = int(read_committed)

    async def look_up(
        self, timestamps: Mapping[TopicPartition, int], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after each time (-2 earliest, -1 latest).

        Partitions without such a record are left out. KafkaTimeoutError names those that no
        leader has answered for.
        """
        network = self._network
        remaining = dict(timestamps)
        offsets: dict[TopicPartition, OffsetAndTimestamp] = {}
        attempts = 0
        while remaining:
            topics = {each.topic for each in remaining}
            cluster = await network.wait_for_topics(topics, deadline_ms)
            _check_existence(cluster, remaining)
            failure: KafkaError = KafkaTimeoutError(
                f"no leader has answered for {', '.join(sorted(map(str, remaining)))} in time: "
                "check that the brokers are up and the partitions have leaders"
            )
            try:
                found = await network.within(deadline_ms, self._attempt(cluster, remaining))
            except KafkaError as error:
                await network.wait_before_retry(error, attempts, deadline_ms)
            else:
                offsets.update(found.offsets)
                remaining = {each: remaining[each] for each in found.retry}
                if remaining:
                    await network.wait_before_retry(failure, attempts, deadline_ms)
            if remaining:
                network.metadata.request_update()
            attempts += 1
        return {each: found for each, found in offsets.items() if found.offset >= 0}

    def _attempt(
        self, cluster: Cluster, timestamps: Mapping[TopicPartition, int]
    ) -> Callable[[], Awaitable[Found]]:
        async def ask_all() -> Found:
            by_leader, without = by_leader_of(cluster, timestamps)
            answers = await asyncio.gather(
                *(self.ask(node, wanted) for node, wanted in by_leader.items())
            )
            result = Found({}, without)
            for answer in answers:
                result.offsets.update(answer.offsets)
                result.retry.update(answer.retry)
            return result

        return ask_all

    async def ask(self, node: int, timestamps: Mapping[TopicPartition, int]) -> Found:
        """One question to one broker; whatever keeps it from answering is raised."""
        cluster = self._network.metadata.cluster

        def make(version: int) -> ListOffsetsRequest:
            topics: dict[str, ListOffsetsTopic] = {}
            for each, timestamp in timestamps.items():
                known = cluster.partition(each)
                topics.setdefault(
                    each.topic, ListOffsetsTopic(name=each.topic, partitions=[])
                ).partitions.append(
                    ListOffsetsPartition(
                        partition_index=each.partition,
                        current_leader_epoch=-1 if known is None else known.leader_epoch,
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
            self._quick_way(node),
            RequestBuilder(ListOffsetsRequest, make),
            ListOffsetsResponse,
            min_version=_FIRST_WITH_ONE_OFFSET,
        )
        found = Found({}, set())
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                code = answer.error_code
                if code == ErrorCode.NONE:
                    found.offsets[partition] = OffsetAndTimestamp(
                        answer.offset, answer.timestamp, answer.leader_epoch
                    )
                elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise _not_authorized(code, topic.name)
                elif code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    # A log from before timestamps: nothing in it has the time that was asked for.
                    found.offsets[partition] = OffsetAndTimestamp(-1, -1)
                else:
                    logger.debug("%s: ListOffsets was answered with error %d", partition, code)
                    found.retry.add(partition)
        found.retry.update(timestamps.keys() - found.offsets.keys())
        return found

    def _quick_way(self, node: int) -> int:
        """A Fetch that waits for records would hold up what comes behind it."""
        network = self._network
        return network.dedicated_connection(node) if network.in_flight(node) else node

    async def ends_of_epochs(
        self, node: int, positions: Mapping[TopicPartition, FetchPosition]
    ) -> dict[TopicPartition, EpochEnd]:
        """Where the epochs of these positions end; those to be asked again are left out."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for each, position in positions.items():
            topics.setdefault(
                each.topic, OffsetForLeaderTopic(topic=each.topic, partitions=[])
            ).partitions.append(
                OffsetForLeaderPartition(
                    partition=each.partition,
                    current_leader_epoch=position.leader.epoch,
                    leader_epoch=position.offset_epoch,
                )
            )
        response = await self._network.request(
            self._quick_way(node),
            OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values())
            ),
            OffsetForLeaderEpochResponse,
            min_version=VALIDATION_VERSION,
        )
        ends: dict[TopicPartition, EpochEnd] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code == ErrorCode.NONE:
                    partition = TopicPartition(topic.topic, answer.partition)
                    ends[partition] = EpochEnd(answer.leader_epoch, answer.end_offset)
                elif answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise _not_authorized(answer.error_code, topic.topic)
        return ends


def by_leader_of(
    cluster: Cluster, wanted: Mapping[TopicPartition, V]
) -> tuple[dict[int, dict[TopicPartition, V]], set[TopicPartition]]:
    """The same by leader, and the partitions that have none."""
    found: dict[int, dict[TopicPartition, V]] = {}
    without: set[TopicPartition] = set()
    for partition, value in wanted.items():
        leader = cluster.leader(partition)
        if leader is None:
            without.add(partition)
        else:
            found.setdefault(leader.id, {})[partition] = value
    return found, without


def _check_existence(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> None:
    for each in wanted:
        count = cluster.partition_count(each.topic)
        if count is not None and not 0 <= each.partition < count:
            raise UnknownTopicError(
                f"there is no {each}: topic {each.topic} has {count} partitions"
            )


def _not_authorized(code: int, topic: str) -> KafkaError:
    return error_of(
        code, f"this client may not read topic {topic}: its user needs the ACL DESCRIBE on it"
    )
