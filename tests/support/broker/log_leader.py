"""A leader broker for replica fetchers under test: real logs behind real fetch sessions."""

import asyncio
from itertools import count
from typing import TypeVar
from uuid import UUID

from penstock.broker.pacer import run_to_end
from penstock.broker.replica.fetch_sessions import CachedPartition, FetchSessionCache
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import Request
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import (
    FetchEpochEndOffset,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from penstock.replication.follower import FollowerResponse
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation

R = TypeVar("R", bound=Message)

TOPIC = "t"
TOPIC_ID = UUID(int=1234)
_EMPTY_FETCH_WAIT_S = 0.005


class LogLeader:
    """Responds to the requests of followers as the leader of its logs."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.epochs: dict[TopicPartition, int] = {}
        """The leader epochs in which this broker leads."""
        self.errors: dict[TopicPartition, ErrorCode] = {}
        """Errors that are returned instead of records."""
        self.fetched: dict[TopicPartition, int] = {}
        """The last offset that was fetched of each partition: everything below it is stored."""
        self.cuts_batches = False
        """Whether responses end within a batch, as those of Kafka's brokers may."""
        ids = count(1)
        self.sessions = FetchSessionCache(10, lambda: next(ids))

    def lead(self, key: TopicPartition, log: Log, epoch: int) -> None:
        self.logs[key] = log
        self.epochs[key] = epoch
        if log.epochs.latest_epoch is None or log.epochs.latest_epoch < epoch:
            log.epochs.assign_unsynced(epoch, log.log_end_offset)

    def handle(self, message: object) -> FollowerResponse:
        match message:
            case FetchRequest():
                return self._fetch(message)
            case ListOffsetsRequest():
                return self._list_offsets(message)
            case OffsetForLeaderEpochRequest():
                return self._end_offsets(message)
        raise AssertionError(f"unexpected {message}")

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        try:
            context = run_to_end(
                self.sessions.open(
                    request, uses_topic_ids=True, name_of=lambda topic_id: TOPIC, now_ms=0
                )
            )
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        context.open_session(0)
        results = [(cached, self._read(cached)) for cached in list(context.partitions.values())]
        topics = run_to_end(context.responses(results))
        return FetchResponse(session_id=context.session_id, responses=topics)

    def _error(self, key: TopicPartition, epoch: int) -> ErrorCode:
        if key in self.errors:
            return self.errors[key]
        if key not in self.logs:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch != self.epochs[key]:
            is_old = epoch < self.epochs[key]
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def _read(self, cached: CachedPartition) -> FetchPartitionData:
        key = TopicPartition(cached.topic, cached.index)
        data = FetchPartitionData(cached.index, self._error(key, cached.leader_epoch))
        if data.error_code:
            return data
        log, offset = self.logs[key], cached.fetch_offset
        if cached.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(cached.last_fetched_epoch)
            if end is None:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return data
            if end.leader_epoch < cached.last_fetched_epoch or end.offset < offset:
                data.diverging_epoch = FetchEpochEndOffset(end.leader_epoch, end.offset)
                data.log_start_offset = log.log_start_offset
                return data
        try:
            read = log.read(offset, cached.max_bytes, FetchIsolation.LOG_END)
        except KafkaError as error:
            data.error_code = error.code
            return data
        data.records = b"" if read.records is None else read.records.read()
        if self.cuts_batches and data.records:
            data.records += b"\0\0\0\0\0\0\0\x01\0\0\1"
        self.fetched[key] = offset
        data.high_watermark = log.high_watermark
        data.log_start_offset = log.log_start_offset
        return data

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                response = ListOffsetsPartitionResponse(
                    partition_index=key.partition,
                    error_code=self._error(key, partition.current_leader_epoch),
                )
                if not response.error_code:
                    log = self.logs[key]
                    is_end = partition.timestamp == -1
                    response.offset = log.log_end_offset if is_end else log.log_start_offset
                partitions.append(response)
            topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        return ListOffsetsResponse(topics=topics)

    def _end_offsets(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                key = TopicPartition(topic.topic, partition.partition)
                response = OffsetForLeaderEpochEndOffset(
                    self._error(key, partition.current_leader_epoch), key.partition
                )
                end = self.logs[key].end_offset_for_epoch(partition.leader_epoch)
                if not response.error_code and end is not None:
                    response.leader_epoch, response.end_offset = end.leader_epoch, end.offset
                partitions.append(response)
            topics.append(OffsetForLeaderTopicResult(topic.topic, partitions))
        return OffsetForLeaderEpochResponse(topics=topics)


class LeaderClient:
    """A `FetcherClient` that delivers requests to a `LogLeader` in the same process."""

    def __init__(self, leader: LogLeader) -> None:
        self.leader = leader
        self.requests: list[object] = []
        self.error: Exception | None = None
        """Raised in place of a response."""
        self.is_closed = False

    async def request(
        self, broker_id: int, message: Request, response_type: type[R], **options: object
    ) -> R:
        await asyncio.sleep(0)
        self.requests.append(message)
        if self.error is not None:
            raise self.error
        response = self.leader.handle(message)
        if isinstance(response, FetchResponse) and not response.responses:
            await asyncio.sleep(_EMPTY_FETCH_WAIT_S)
        assert isinstance(response, response_type)
        return response

    async def close(self) -> None:
        self.is_closed = True
