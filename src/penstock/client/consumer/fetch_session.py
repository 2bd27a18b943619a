"""Incremental fetch sessions (KIP-227) on the consumer's side, one per broker.

The first request of a session names every partition; later ones only the partitions that are new,
changed or removed. Both sides remember the others. When they disagree, or a request is lost, the
next request starts a new session.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchPartitionData,
    FetchResponse,
    FetchTopic,
)

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1

FIRST_VERSION_WITH_TOPIC_IDS = 13


class PartitionRequest(NamedTuple):
    """The fetch parameters of one partition."""

    topic_id: UUID
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1


class FetchRequestData(NamedTuple):
    """The next request of a session."""

    session_id: int
    epoch: int
    to_send: Mapping[TopicPartition, PartitionRequest]
    to_forget: tuple[tuple[UUID, TopicPartition], ...]
    to_replace: tuple[tuple[UUID, TopicPartition], ...]
    """Partitions of topics that were deleted and recreated, with their old ids."""

    partitions: Mapping[TopicPartition, PartitionRequest]
    """All partitions of the session, which the response may have, named in the request or not."""

    uses_topic_ids: bool

    def topics(self) -> list[FetchTopic]:
        topics: dict[tuple[str, UUID], FetchTopic] = {}
        for (topic, index), request in self.to_send.items():
            entry = topics.get((topic, request.topic_id))
            if entry is None:
                entry = FetchTopic(topic=topic, topic_id=request.topic_id, partitions=[])
                topics[topic, request.topic_id] = entry
            entry.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=request.current_leader_epoch,
                    fetch_offset=request.fetch_offset,
                    partition_max_bytes=request.max_bytes,
                )
            )
        return list(topics.values())

    def forgotten_topics(self, version: int) -> list[FetchForgottenTopic]:
        forgotten = self.to_forget
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            forgotten += self.to_replace
        topics: dict[tuple[UUID, str], FetchForgottenTopic] = {}
        for topic_id, (topic, index) in forgotten:
            entry = topics.get((topic_id, topic))
            if entry is None:
                entry = FetchForgottenTopic(topic=topic, topic_id=topic_id, partitions=[])
                topics[topic_id, topic] = entry
            entry.partitions.append(index)
        return list(topics.values())


class FetchSessionHandler:
    """The session of a consumer with one broker."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, PartitionRequest] = {}
        self._topic_names: dict[UUID, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names every partition: it is a full fetch."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def build(self, partitions: Mapping[TopicPartition, PartitionRequest]) -> FetchRequestData:
        """Returns the request after which the session has exactly these partitions."""
        uses_topic_ids = all(request.topic_id != ZERO_UUID for request in partitions.values())
        to_forget: list[tuple[UUID, TopicPartition]] = []
        to_replace: list[tuple[UUID, TopicPartition]] = []
        if self.is_full:
            to_send = dict(partitions)
        else:
            previous = self.partitions
            to_send = {
                partition: request
                for partition, request in partitions.items()
                if partition not in previous
            }
            for partition, old in previous.items():
                new = partitions.get(partition)
                if new is None:
                    to_forget.append((old.topic_id, partition))
                    uses_topic_ids = uses_topic_ids and old.topic_id != ZERO_UUID
                elif new != old:
                    to_send[partition] = new
                    if ZERO_UUID not in (old.topic_id, new.topic_id) and (
                        old.topic_id != new.topic_id
                    ):
                        to_replace.append((old.topic_id, partition))
        self.partitions = dict(partitions)
        self._topic_names = (
            {request.topic_id: partition.topic for partition, request in partitions.items()}
            if uses_topic_ids
            else {}
        )
        return FetchRequestData(
            self.session_id,
            self.epoch,
            to_send,
            tuple(to_forget),
            tuple(to_replace),
            self.partitions,
            uses_topic_ids,
        )

    def handle_response(
        self, response: FetchResponse
    ) -> dict[TopicPartition, FetchPartitionData] | None:
        """Returns the data by partition; None if the response is invalid for the session.

        After None the next request is a full fetch.
        """
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._start_over()
            else:
                self.epoch = INITIAL_EPOCH
            return None
        data = self._by_partition(response)
        if data is None or (self.is_full and data.keys() != self.partitions.keys()):
            # The response to a throttled full fetch is empty (KIP-219): it must be repeated.
            if self.is_full:
                self._start_over()
            else:
                self.epoch = INITIAL_EPOCH
            return None
        if response.session_id == NO_SESSION:
            self._start_over()
        elif self.is_full:
            self.session_id = response.session_id
            self.epoch = 1
        else:
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
        return data

    def handle_error(self) -> None:
        """Has the next request start a new session: the broker may have missed this one."""
        self.epoch = INITIAL_EPOCH

    def closing_request(self) -> FetchRequestData:
        """Returns the request that ends the session."""
        self.epoch = FINAL_EPOCH
        return self.build({})

    def _start_over(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    def _by_partition(
        self, response: FetchResponse
    ) -> dict[TopicPartition, FetchPartitionData] | None:
        by_partition: dict[TopicPartition, FetchPartitionData] = {}
        for topic in response.responses:
            name = topic.topic or self._topic_names.get(topic.topic_id)
            if name is None:
                return None
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition not in self.partitions:
                    return None
                by_partition[partition] = data
        return by_partition
