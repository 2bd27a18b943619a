"""TxnOffsetCommit: offsets that count when the transaction of a producer commits (P4)."""

from uuid import UUID

from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer import offset_checks
from penstock.coordinator.group.consumer.model import ConsumerGroup
from penstock.coordinator.group.events import Context, Group
from penstock.coordinator.group.records import OffsetRecord
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

_TOPIC_ID_VERSION = 6


class TransactionalCommit:
    """A TxnOffsetCommit: its records, which belong to the transaction, and its response."""

    def __init__(
        self, request: TxnOffsetCommitRequest, context: Context, now: int, config: GroupConfig
    ) -> None:
        self.records: list[OffsetRecord] = []
        self.response = TxnOffsetCommitResponse()
        self._request = request
        self._context = context
        self._now = now
        self._config = config

    def decide(self, group: Group | None) -> None:
        """Fill in what follows. An error of the group holds for all partitions."""
        group_error = self._may_commit(group) or self._not_owned(group)
        for topic in self._request.topics:
            name, _ = self._resolve(topic.name, topic.topic_id)
            answer = TxnOffsetCommitResponseTopic(topic.name, topic.topic_id)
            for partition in topic.partitions:
                index = partition.partition_index
                if name is None:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                elif not self._context.topics.has_partition(name, index):
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif group_error:
                    error = group_error
                else:
                    # As in Kafka, only a client that names the topic by its id has it stored.
                    error = self._commit(name, topic.topic_id, partition)
                answer.partitions.append(TxnOffsetCommitResponsePartition(index, error))
            self.response.topics.append(answer)

    def _may_commit(self, group: Group | None) -> ErrorCode:
        """Clients of old say nothing of the member; where something is said, it must be right."""
        request = self._request
        generation, member_id = request.generation_id_or_member_epoch, request.member_id
        if group is None:
            return ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE
        unsaid = generation < 0 and not member_id and request.group_instance_id is None
        if unsaid or (generation < 0 and group.is_empty):
            return ErrorCode.NONE
        if isinstance(group, ConsumerGroup):
            member = group.members.get(member_id)
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            late = generation > member.member_epoch
            return ErrorCode.ILLEGAL_GENERATION if late else ErrorCode.NONE
        error = group.validate_member(member_id, request.group_instance_id)
        if error:
            return error
        wrong = generation != group.generation
        return ErrorCode.ILLEGAL_GENERATION if wrong else ErrorCode.NONE

    def _not_owned(self, group: Group | None) -> ErrorCode:
        """Of an epoch of the past, one partition that the member did not have refuses them all."""
        if not isinstance(group, ConsumerGroup):
            return ErrorCode.NONE
        member = group.members.get(self._request.member_id)
        epoch = self._request.generation_id_or_member_epoch
        if member is None or epoch == member.member_epoch:
            return ErrorCode.NONE
        for topic in self._request.topics:
            _, topic_id = self._resolve(topic.name, topic.topic_id)
            for partition in topic.partitions:
                index = partition.partition_index
                if offset_checks.may_commit_partition(member, epoch, topic_id, index):
                    return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _resolve(self, name: str, topic_id: UUID) -> tuple[str | None, UUID]:
        topics = self._context.topics
        if self._context.version >= _TOPIC_ID_VERSION:
            return topics.topic_name(topic_id), topic_id
        return name, topics.topic_id(name) or ZERO_UUID

    def _commit(
        self, topic: str, topic_id: UUID, partition: TxnOffsetCommitRequestPartition
    ) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=self._now,
            expire_timestamp=-1,
            topic_id=topic_id,
        )
        key = OffsetCommitKey(self._request.group_id, topic, partition.partition_index)
        self.records.append(OffsetRecord(key, value))
        return ErrorCode.NONE
