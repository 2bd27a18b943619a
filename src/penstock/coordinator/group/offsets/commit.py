"""OffsetCommit and TxnOffsetCommit: checks and records of commits.

Both are checked alike. The offsets of a TxnOffsetCommit are pending until its transaction ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar
from uuid import UUID

from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.events import Context
from penstock.coordinator.group.group import Group
from penstock.coordinator.group.group_types import type_of
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

_GROUP_ID_NOT_FOUND_VERSION = 9
_NEVER = 2**63 - 1
"""The latest time at which an offset can expire."""

RequestT = TypeVar("RequestT", OffsetCommitRequest, TxnOffsetCommitRequest)


class _Commit(ABC, Generic[RequestT]):
    """What both requests have in common. It is the `CommitRequest` that group types check."""

    is_transactional: ClassVar[bool]
    topic_id_version: ClassVar[int]
    """The version from which on topics are named by their ids."""

    def __init__(self, request: RequestT, context: Context, now: int, config: GroupConfig) -> None:
        self.records: list[OffsetRecord] = []
        self.member_id: str = request.member_id
        self.instance_id: str | None = request.group_instance_id
        self.generation: int = request.generation_id_or_member_epoch
        self.version = context.version
        self._request: RequestT = request
        self._topics = context.topics
        self._now = now
        self._max_metadata = config.offset_metadata_max_bytes

    @abstractmethod
    def partitions(self) -> Iterator[tuple[UUID, int]]: ...

    @abstractmethod
    def _check_absent_group(self) -> ErrorCode:
        """Returns whether offsets of a group that does not exist may be committed."""

    def _check_group(self, group: Group | None) -> ErrorCode:
        if group is None:
            return self._check_absent_group() if self.generation >= 0 else ErrorCode.NONE
        if self.generation < 0:
            # A tool, or a consumer that assigns its partitions itself.
            if group.is_empty:
                return ErrorCode.NONE
            # Old producers do not name the member in a transaction.
            if self.is_transactional and not self.member_id and self.instance_id is None:
                return ErrorCode.NONE
        return type_of(group).check_commit(group, self)

    def _check_partition(
        self, name: str | None, index: int, metadata: str | None, group_error: ErrorCode
    ) -> ErrorCode:
        """Checks in Kafka's order: a partition that does not exist comes before the group."""
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._topics.has_partition(name, index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if group_error:
            return group_error
        if self._is_too_long(metadata):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _is_too_long(self, metadata: str | None) -> bool:
        return len(metadata or "") > self._max_metadata

    def _resolve(self, name: str, topic_id: UUID) -> tuple[str | None, UUID]:
        """Returns name and id of a topic; no name if there is no topic with the id."""
        if self.version >= self.topic_id_version:
            return self._topics.topic_name(topic_id), topic_id
        return name, self._topics.topic_id(name) or ZERO_UUID

    def _add_record(
        self,
        topic: str | None,
        topic_id: UUID,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        *,
        commit_timestamp: int,
        expire_timestamp: int,
    ) -> None:
        assert topic is not None
        self.records.append(
            OffsetRecord(
                OffsetCommitKey(self._request.group_id, topic, partition.partition_index),
                OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    commit_timestamp=commit_timestamp,
                    expire_timestamp=expire_timestamp,
                    topic_id=topic_id,
                ),
            )
        )


class Commit(_Commit[OffsetCommitRequest]):
    """An OffsetCommit."""

    is_transactional = False
    topic_id_version = 10

    def decide(self, group: Group | None) -> tuple[OffsetCommitResponse, ErrorCode]:
        """Collects the records; returns the response, and the error of the group as a whole."""
        group_error = self._check_group(group)
        response = OffsetCommitResponse()
        retention = self._request.retention_time_ms
        expire_timestamp = -1 if retention == -1 else min(self._now + retention, _NEVER)
        for topic in self._request.topics:
            name, topic_id = self._resolve(topic.name, topic.topic_id)
            response_topic = OffsetCommitResponseTopic(topic.name, topic.topic_id)
            for partition in topic.partitions:
                index = partition.partition_index
                error = self._check_partition(
                    name, index, partition.committed_metadata, group_error
                )
                if not error:
                    timestamp = partition.commit_timestamp
                    self._add_record(
                        name,
                        topic_id,
                        partition,
                        commit_timestamp=self._now if timestamp == -1 else timestamp,
                        expire_timestamp=expire_timestamp,
                    )
                response_topic.partitions.append(OffsetCommitResponsePartition(index, error))
            response.topics.append(response_topic)
        return response, group_error

    def partitions(self) -> Iterator[tuple[UUID, int]]:
        """Yields the partitions that would be committed: an earlier error is the partition's."""
        for topic in self._request.topics:
            name, topic_id = self._resolve(topic.name, topic.topic_id)
            for partition in topic.partitions:
                metadata, index = partition.committed_metadata, partition.partition_index
                if not self._check_partition(name, index, metadata, ErrorCode.NONE):
                    yield topic_id, index

    def _check_absent_group(self) -> ErrorCode:
        if self.version >= _GROUP_ID_NOT_FOUND_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION


class TransactionalCommit(_Commit[TxnOffsetCommitRequest]):
    """A TxnOffsetCommit. Its records belong to the producer's transaction (P4)."""

    is_transactional = True
    topic_id_version = 6

    def decide(self, group: Group | None) -> TxnOffsetCommitResponse:
        """Collects the records; returns the response."""
        group_error = self._check_group(group)
        response = TxnOffsetCommitResponse()
        for topic in self._request.topics:
            name, _ = self._resolve(topic.name, topic.topic_id)
            response_topic = TxnOffsetCommitResponseTopic(topic.name, topic.topic_id)
            for partition in topic.partitions:
                index = partition.partition_index
                error = self._check_partition(
                    name, index, partition.committed_metadata, group_error
                )
                if not error:
                    # As in Kafka, the id is stored only if the client names the topic by it.
                    self._add_record(
                        name,
                        topic.topic_id,
                        partition,
                        commit_timestamp=self._now,
                        expire_timestamp=-1,
                    )
                response_topic.partitions.append(TxnOffsetCommitResponsePartition(index, error))
            response.topics.append(response_topic)
        return response

    def partitions(self) -> Iterator[tuple[UUID, int]]:
        for topic in self._request.topics:
            _, topic_id = self._resolve(topic.name, topic.topic_id)
            for partition in topic.partitions:
                yield topic_id, partition.partition_index

    def _check_absent_group(self) -> ErrorCode:
        return ErrorCode.ILLEGAL_GENERATION
