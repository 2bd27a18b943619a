"""Incremental fetch sessions (KIP-227), as a consumer keeps them: one per broker.

The first request of a session names every partition; those after it only what is new, changed or
gone. Both sides remember the rest. When they disagree, or a request is lost, the next one starts a
new session in place of the old.
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
    """What is asked of one partition."""

    topic_id: UUID
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1


class SessionRequest(NamedTuple):
    """The next request of a session."""

    session_id: int
    epoch: int
    to_send: Mapping[TopicPartition, PartitionRequest]
    to_forget: tuple[tuple[UUID, TopicPartition], ...]
    to_replace: tuple[tuple[UUID, TopicPartition], ...]
    """Partitions of topics that were deleted and made anew: their old ids."""

    partitions: Mapping[TopicPartition, PartitionRequest]
    """All that the broker may answer about, named in this request or not."""

    uses_topic_ids: bool

    def topics(self) -> list[FetchTopic]:
        found: dict[tuple[str, UUID], FetchTopic] = {}
        for (topic, index), asked in self.to_send.items():
            entry = found.get((topic, asked.topic_id))
            if entry is None:
                entry = FetchTopic(topic=topic, topic_id=asked.topic_id, partitions=[])
                found[topic, asked.topic_id] = entry
            entry.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=asked.current_leader_epoch,
                    fetch_offset=asked.fetch_offset,
                    partition_max_bytes=asked.max_bytes,
                )
            )
        return list(found.values())

    def forgotten(self, version: int) -> list[FetchForgottenTopic]:
        gone = self.to_forget
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            gone += self.to_replace
        found: dict[tuple[UUID, str], FetchForgottenTopic] = {}
        for topic_id, (topic, index) in gone:
            entry = found.get((topic_id, topic))
            if entry is None:
                entry = FetchForgottenTopic(topic=topic, topic_id=topic_id, partitions=[])
                found[topic_id, topic] = entry
            entry.partitions.append(index)
        return list(found.values())


class FetchSession:
    """A consumer's side of its session with one broker."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, PartitionRequest] = {}
        self._topic_names: dict[UUID, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names every partition."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def build(self, wanted: Mapping[TopicPartition, PartitionRequest]) -> SessionRequest:
        """The request that makes the session be about `wanted`."""
        uses_topic_ids = all(each.topic_id != ZERO_UUID for each in wanted.values())
        to_forget: list[tuple[UUID, TopicPartition]] = []
        to_replace: list[tuple[UUID, TopicPartition]] = []
        if self.is_full:
            to_send = dict(wanted)
        else:
            before = self.partitions
            to_send = {each: asked for each, asked in wanted.items() if each not in before}
            for partition, old in before.items():
                new = wanted.get(partition)
                if new is None:
                    to_forget.append((old.topic_id, partition))
                    uses_topic_ids = uses_topic_ids and old.topic_id != ZERO_UUID
                elif new != old:
                    to_send[partition] = new
                    if ZERO_UUID not in (old.topic_id, new.topic_id) and (
                        old.topic_id != new.topic_id
                    ):
                        to_replace.append((old.topic_id, partition))
        self.partitions = dict(wanted)
        self._topic_names = (
            {asked.topic_id: each.topic for each, asked in wanted.items()} if uses_topic_ids else {}
        )
        return SessionRequest(
            self.session_id,
            self.epoch,
            to_send,
            tuple(to_forget),
            tuple(to_replace),
            self.partitions,
            uses_topic_ids,
        )

    def answered(self, response: FetchResponse) -> dict[TopicPartition, FetchPartitionData] | None:
        """Take the answer to the last request; None where it is of no use, and a new one is due."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._start_over()
            else:
                self.epoch = INITIAL_EPOCH
            return None
        found = self._by_partition(response)
        if found is None or (self.is_full and found.keys() != self.partitions.keys()):
            # A throttled full fetch is answered with nothing (KIP-219): it is to be asked again.
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
        return found

    def failed(self) -> None:
        """The request was lost, or its answer: nobody knows what the broker has."""
        self.epoch = INITIAL_EPOCH

    def closing(self) -> SessionRequest:
        """The request that ends the session."""
        self.epoch = FINAL_EPOCH
        return self.build({})

    def _start_over(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    def _by_partition(
        self, response: FetchResponse
    ) -> dict[TopicPartition, FetchPartitionData] | None:
        found: dict[TopicPartition, FetchPartitionData] = {}
        for topic in response.responses:
            name = topic.topic or self._topic_names.get(topic.topic_id)
            if name is None:
                return None
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition not in self.partitions:
                    return None
                found[partition] = data
        return found
