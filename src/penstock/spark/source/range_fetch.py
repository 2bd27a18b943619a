"""Fetches a range of one partition ahead of its reader, and detects records that are lost.

Fetches name the topic by the id with which the range was planned: a topic that was deleted and
created again has another id, so its records cannot be taken for the old ones. Fetches stop at the
end of the range.
"""

import asyncio
import logging
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final, NoReturn
from uuid import UUID

from penstock.client.consumer.completed_fetch import CompletedFetch, FetchConfig
from penstock.client.consumer.offset_fetcher import OffsetFetcher
from penstock.client.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    UnknownTopicError,
    error_of,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node, TopicInfo
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.spark.errors import DataLossError
from penstock.spark.source.clients import FetchClient
from penstock.spark.source.ranges import OffsetRange
from penstock.spark.source.topic_ids import from_text

logger = logging.getLogger(__name__)

_DEPTH: Final = 2
"""Responses that may be buffered: one that is processed, and the next one."""
_LAST_VERSION_WITH_NAMES: Final = 12
_EARLIEST, _LATEST, _EARLIEST_LOCAL = -2, -1, -4
_GONE_AFTER_MS: Final = 5_000
"""After this time a topic that no broker knows is lost. A broker that has just started may not know
it yet."""
_EMPTY_RESPONSES_OF_A_GAP: Final = 2
_TOPIC_IS_ANOTHER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class _NotYetError(Exception):
    """The fetch must be retried.

    `message` is reported when the time is over; with `is_loss` the records are lost then.
    """

    def __init__(self, message: str, *, is_loss: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_loss = is_loss


class _RangeEndError(Exception):
    """The range has no more records."""


class RangeFetch:
    """The responses with the records of a range, fetched ahead on the client's event loop."""

    def __init__(
        self,
        offset_range: OffsetRange,
        client: FetchClient,
        *,
        fail_on_data_loss: bool,
        poll_timeout_ms: int,
    ) -> None:
        self._range = offset_range
        self._client = client
        self._network = client.network
        self._fail_on_data_loss = fail_on_data_loss
        self._poll_timeout_ms = poll_timeout_ms
        self._partition = TopicPartition(offset_range.topic, offset_range.partition)
        self._topic_id: UUID = from_text(offset_range.topic_id) or ZERO_UUID
        settings = client.settings
        self._read_committed = settings["isolation_level"] == "read_committed"
        self._decoding = FetchConfig(
            check_crcs=settings["check_crcs"], read_committed=self._read_committed
        )
        self._offset_fetcher = OffsetFetcher(self._network, read_committed=False)
        self._replica = -1
        """The preferred read replica; -1 to fetch from the leader."""
        self._empty_responses = 0
        self._missing_since_ms: int | None = None
        """Since when brokers report that the topic or the partition does not exist."""
        self._responses: SimpleQueue[CompletedFetch | BaseException | None] = SimpleQueue()
        self._capacity = asyncio.Semaphore(_DEPTH)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[CompletedFetch]:
        """Yields the responses in order. The caller must call `close` afterwards."""
        self._client.thread.post(self._start)
        while (response := self._responses.get()) is not None:
            if isinstance(response, BaseException):
                raise response
            yield response
            self._client.thread.post(self._capacity.release)

    def close(self) -> None:
        """Stops fetching. A response that arrives later is dropped."""
        self._client.thread.post(self._cancel)

    # --- on the event loop

    def _start(self) -> None:
        if not self._is_closed:
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(self._on_done)

    def _cancel(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        error = (
            IllegalStateError("the client was closed while a range was read")
            if task.cancelled()
            else task.exception()
        )
        self._responses.put(None if isinstance(error, _RangeEndError) else error)

    async def _run(self) -> None:
        offset = self._range.start
        while offset < self._range.end:
            await self._capacity.acquire()
            fetch = await self._fetch(offset)
            self._responses.put(fetch)
            if fetch.end_offset <= offset:
                # Not one whole batch: the reader raises an error about it.
                return
            offset = fetch.end_offset

    async def _fetch(self, offset: int) -> CompletedFetch:
        """Returns the response with the first records from `offset` on."""
        network = self._network
        deadline_ms = network.clock.monotonic_ms() + self._poll_timeout_ms
        attempts = 0
        self._empty_responses = 0
        while True:
            try:
                topic = await self._topic(deadline_ms)
                data = await self._send_fetch(topic, offset, deadline_ms)
                if data.records and not data.error_code:
                    return CompletedFetch(self._partition, offset, data, self._decoding)
                offset = await self._without_records(data, offset, deadline_ms)
                continue
            except _NotYetError as reason:
                problem, is_loss = reason.message, reason.is_loss
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                self._replica = -1
                network.metadata.request_update()
                problem, is_loss = error.message, False
            delay_ms = network.retry_backoff.delay_ms(attempts)
            if network.clock.monotonic_ms() + delay_ms >= deadline_ms:
                if is_loss:
                    self._lose(problem)
                    raise _RangeEndError
                raise KafkaTimeoutError(
                    f"{self._partition}: nothing came from offset {offset} on within "
                    f"{self._poll_timeout_ms} ms: {problem}",
                    remedy="check the brokers, or raise the option kafkaConsumer.pollTimeoutMs",
                )
            await asyncio.sleep(delay_ms / 1000)
            attempts += 1

    async def _topic(self, deadline_ms: int) -> TopicInfo:
        """Returns the topic; raises `DataLossError` if it is not the one that was planned."""
        network, name = self._network, self._range.topic
        metadata_deadline_ms = network.clock.monotonic_ms() + _GONE_AFTER_MS // 5
        try:
            cluster = await network.wait_for_topics([name], min(deadline_ms, metadata_deadline_ms))
            if self._is_another(cluster.topics[name]):
                # The cached metadata may be older than the range.
                cluster = await network.within(deadline_ms, network.update_metadata)
        except UnknownTopicError:
            raise self._missing(
                f"topic {name} no longer exists; its records from offset "
                f"{self._range.start} on are gone"
            ) from None
        topic = cluster.topics.get(name)
        if topic is None or not topic.partitions:
            raise _NotYetError(f"topic {name} has no metadata at present")
        if self._is_another(topic):
            raise DataLossError(
                f"topic {name} was deleted and created again since these offsets were planned: "
                "they mean nothing in the new topic",
                remedy="start with a new checkpoint (for a pipeline: `penstock pipeline rebuild`)",
            )
        if self._partition.partition >= len(topic.partitions):
            raise self._missing(
                f"there is no {self._partition}: topic {name} has {len(topic.partitions)} "
                "partitions"
            )
        self._missing_since_ms = None
        return topic

    def _missing(self, problem: str) -> "_NotYetError | _RangeEndError":
        """Returns the exception for a missing topic or partition, which is lost after some time."""
        now_ms = self._network.clock.monotonic_ms()
        if self._missing_since_ms is None:
            self._missing_since_ms = now_ms
        if now_ms < self._missing_since_ms + _GONE_AFTER_MS:
            self._network.metadata.request_update()
            return _NotYetError(problem, is_loss=True)
        self._lose(problem)
        return _RangeEndError()

    def _is_another(self, topic: TopicInfo) -> bool:
        return ZERO_UUID not in (topic.topic_id, self._topic_id) and (
            topic.topic_id != self._topic_id
        )

    async def _send_fetch(
        self, topic: TopicInfo, offset: int, deadline_ms: int
    ) -> FetchPartitionData:
        network, settings = self._network, self._client.settings
        partition = topic.partitions[self._partition.partition]
        topic_id = topic.topic_id if self._topic_id == ZERO_UUID else self._topic_id
        node = (
            self._replica if self._replica in network.metadata.cluster.nodes else partition.leader
        )
        if node not in network.metadata.cluster.nodes:
            network.metadata.request_update()
            raise _NotYetError(f"{self._partition} has no leader at present")
        request = FetchRequest(
            max_wait_ms=settings["fetch_max_wait_ms"],
            # The records of the range exist already, so there is no need to wait for more.
            min_bytes=1,
            max_bytes=settings["fetch_max_bytes"],
            isolation_level=int(self._read_committed),
            topics=[
                FetchTopic(
                    topic=self._partition.topic,
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=self._partition.partition,
                            current_leader_epoch=partition.leader_epoch,
                            fetch_offset=offset,
                            partition_max_bytes=settings["max_partition_fetch_bytes"],
                        )
                    ],
                )
            ],
            rack_id=settings["client_rack"],
        )
        response = await network.within(
            deadline_ms,
            lambda: network.request(
                node,
                request,
                FetchResponse,
                max_version=_LAST_VERSION_WITH_NAMES if topic_id == ZERO_UUID else None,
            ),
        )
        if response.error_code:
            return FetchPartitionData(error_code=response.error_code)
        for topic_response in response.responses:
            for data in topic_response.partitions:
                self._note_leader(data, response)
                return data
        raise _NotYetError("the response is empty, as from a broker that throttles")

    def _note_leader(self, data: FetchPartitionData, response: FetchResponse) -> None:
        leader = data.current_leader
        if leader.leader_id >= 0:
            nodes = [
                Node(endpoint.node_id, endpoint.host, endpoint.port)
                for endpoint in response.node_endpoints
            ]
            self._network.metadata.update_leader(
                self._partition, leader.leader_id, leader.leader_epoch, nodes
            )

    async def _without_records(
        self, data: FetchPartitionData, offset: int, deadline_ms: int
    ) -> int:
        """Handles a response without records: returns the offset to fetch next, or raises."""
        code = data.error_code
        if code == ErrorCode.NONE:
            if data.preferred_read_replica < 0:
                await self._no_records(data, offset, deadline_ms)
            self._replica = data.preferred_read_replica
            if self._replica not in self._network.metadata.cluster.nodes:
                self._network.metadata.request_update()
                raise _NotYetError(f"broker {self._replica}, to be read from, is unknown so far")
            return offset
        is_from_follower = self._replica >= 0
        self._replica = -1
        if is_from_follower:
            raise _NotYetError(f"a follower responded with error {code}; the leader is next")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._out_of_range(offset, deadline_ms)
        if code in _TOPIC_IS_ANOTHER:
            await self._network.within(deadline_ms, self._network.update_metadata)
            raise _NotYetError(f"the broker has no {self._partition} at present")
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise error_of(
                code,
                f"this client may not read topic {self._range.topic}: its user needs the ACL READ "
                "on it",
            )
        raise error_of(code, f"offset {offset} of {self._partition} cannot be fetched")

    async def _no_records(
        self, data: FetchPartitionData, offset: int, deadline_ms: int
    ) -> NoReturn:
        """Handles an empty response: records are not readable yet, or compaction removed them."""
        end = self._range.end
        readable = data.last_stable_offset if self._read_committed else data.high_watermark
        if readable >= end:
            self._empty_responses += 1
            if self._empty_responses >= _EMPTY_RESPONSES_OF_A_GAP and await self._is_local(
                offset, deadline_ms
            ):
                # Compaction has left nothing up to the end of the log.
                raise _RangeEndError
            raise _NotYetError("the broker responds without records")
        if data.high_watermark >= end:
            raise _NotYetError(
                f"a transaction that is still open holds back what is behind offset {readable}"
            )
        raise _NotYetError(
            f"{self._partition} ends at offset {data.high_watermark}, the range at {end}: the log "
            "was cut, or the end never existed",
            is_loss=True,
        )

    async def _is_local(self, offset: int, deadline_ms: int) -> bool:
        """Whether `offset` is on the broker's own disk, not in remote storage."""
        try:
            offsets = await self._network.within(
                deadline_ms,
                lambda: self._offset_fetcher.fetch_offsets(
                    {self._partition: _EARLIEST_LOCAL}, deadline_ms
                ),
            )
        except KafkaError:
            return True
        return self._partition not in offsets or offsets[self._partition].offset <= offset

    async def _out_of_range(self, offset: int, deadline_ms: int) -> int:
        """Returns the first offset after `offset` that still has records; reports the loss."""
        first = await self._list_offset(_EARLIEST, deadline_ms)
        last = await self._list_offset(_LATEST, deadline_ms)
        end = self._range.end
        if offset < first:
            self._lose(
                f"{self._partition}: the records from offset {offset} to {min(first, end)} are "
                f"gone, the log begins at {first}: they were older than its retention, or deleted"
            )
            if first >= end:
                raise _RangeEndError
            return first
        if offset > last:
            self._lose(
                f"{self._partition} ends at offset {last}, before offset {offset} of the range: "
                "the log was cut"
            )
            raise _RangeEndError
        raise _NotYetError(f"offset {offset} is in the log again, which is from {first} to {last}")

    async def _list_offset(self, timestamp: int, deadline_ms: int) -> int:
        offsets = await self._offset_fetcher.fetch_offsets(
            {self._partition: timestamp}, deadline_ms
        )
        return offsets[self._partition].offset

    def _lose(self, message: str) -> None:
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{message}",
                remedy="set the option failOnDataLoss to false to continue without them",
            )
        logger.warning("%s", message)
