"""Committed offsets: who stored them, who may, who asks for them, and when they expire."""

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from penstock.coordinator.group.classic.model import ClassicGroupState
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer import offset_checks
from penstock.coordinator.group.consumer.model import ConsumerGroup
from penstock.coordinator.group.events import Context, Group
from penstock.coordinator.group.offsets.pending import PendingOffsets
from penstock.coordinator.group.records import OffsetRecord, offset_tombstone
from penstock.coordinator.group.topics import Topics
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

_TOPIC_ID_VERSION = 10
_GROUP_ID_NOT_FOUND_VERSION = 9

Partitions = dict[int, OffsetCommitValue]


class Offsets:
    """What groups have committed, by group, topic and partition. Changed by `apply` alone."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Partitions]] = {}
        self.pending = PendingOffsets()

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is None:
            self._remove(key)
            self.pending.remove(key)
            return
        if self.pending:
            self.pending.supersede(key)
        self._put(key, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        for key, value in self.pending.end(producer_id, commit=commit):
            self._put(key, value)

    def _put(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        try:
            self.groups[key.group][key.topic][key.partition] = value
        except KeyError:
            topics = self.groups.setdefault(key.group, {})
            topics.setdefault(key.topic, {})[key.partition] = value

    def _remove(self, key: OffsetCommitKey) -> None:
        topics = self.groups.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self.groups[key.group]

    def of(self, group_id: str) -> dict[str, Partitions]:
        return self.groups.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.of(group_id).get(topic, {}).get(partition)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether something is committed there, or will be with a transaction."""
        known = self.get(group_id, topic, partition)
        return known is not None or self.pending.is_open(group_id, topic, partition)

    def tombstones(self, group_id: str) -> Iterator[OffsetRecord]:
        """Records that delete all that the group has committed, in open transactions too."""
        for topic, partitions in self.of(group_id).items():
            for partition in partitions:
                yield offset_tombstone(group_id, topic, partition)
        for topic, partition in self.pending.partitions(group_id):
            if self.get(group_id, topic, partition) is None:
                yield offset_tombstone(group_id, topic, partition)

    def tombstones_of(self, partitions: Iterable[TopicPartition]) -> Iterator[OffsetRecord]:
        """Records that delete what any group has committed in these partitions."""
        wanted = list(partitions)
        for group_id in {**self.groups, **dict.fromkeys(self.pending.groups)}:
            for topic, partition in wanted:
                if self.has(group_id, topic, partition):
                    yield offset_tombstone(group_id, topic, partition)


# --- OffsetCommit


def may_commit(group: Group | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        if version >= _GROUP_ID_NOT_FOUND_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.is_empty:
        # A tool, or a consumer that assigns its partitions itself.
        return ErrorCode.NONE
    if isinstance(group, ConsumerGroup):
        return offset_checks.may_commit(group, member_id, generation, version)
    if generation < 0 and not member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(member_id, request.group_instance_id)
    if error:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


class Commit:
    """An OffsetCommit: its records and the topics of its response, in the order of the request."""

    def __init__(
        self, request: OffsetCommitRequest, context: Context, now: int, config: GroupConfig
    ) -> None:
        self.records: list[OffsetRecord] = []
        self.topics: list[OffsetCommitResponseTopic] = []
        self.now = now
        self.config = config
        self.request = request
        self.context = context

    def decide(self, group: Group | None) -> ErrorCode:
        """Fill in what follows; the error that the group gave, if any.

        Partitions that do not exist are refused before the group is asked, as Kafka does it.
        """
        group_error = may_commit(group, self.request, self.context.version)
        if not group_error and isinstance(group, ConsumerGroup):
            group_error = self._not_owned(group)
        for topic in self.request.topics:
            name, topic_id = self._resolve(topic.name, topic.topic_id)
            answer = OffsetCommitResponseTopic(topic.name, topic.topic_id)
            for partition in topic.partitions:
                index = partition.partition_index
                if name is None:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                elif not self.context.topics.has_partition(name, index):
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif group_error:
                    error = group_error
                else:
                    error = self._commit(name, topic_id, partition)
                answer.partitions.append(OffsetCommitResponsePartition(index, error))
            self.topics.append(answer)
        return group_error

    def _not_owned(self, group: ConsumerGroup) -> ErrorCode:
        """One partition that a member does not have, in the epoch it names, refuses them all."""
        member = group.members.get(self.request.member_id)
        epoch = self.request.generation_id_or_member_epoch
        if member is None or epoch == member.member_epoch:
            return ErrorCode.NONE
        for topic in self.request.topics:
            name, topic_id = self._resolve(topic.name, topic.topic_id)
            for partition in topic.partitions:
                index = partition.partition_index
                if name is None or not self.context.topics.has_partition(name, index):
                    continue
                error = offset_checks.may_commit_partition(member, epoch, topic_id, index)
                if error and not self._is_too_long(partition.committed_metadata):
                    return error
        return ErrorCode.NONE

    def _is_too_long(self, metadata: str | None) -> bool:
        return len(metadata or "") > self.config.offset_metadata_max_bytes

    def _resolve(self, name: str, topic_id: UUID) -> tuple[str | None, UUID]:
        topics = self.context.topics
        if self.context.version >= _TOPIC_ID_VERSION:
            return topics.topic_name(topic_id), topic_id
        return name, topics.topic_id(name) or ZERO_UUID

    def _commit(
        self, topic: str, topic_id: UUID, partition: OffsetCommitRequestPartition
    ) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if self._is_too_long(metadata):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        retention = self.request.retention_time_ms
        committed_at = partition.commit_timestamp
        self.records.append(
            OffsetRecord(
                OffsetCommitKey(self.request.group_id, topic, partition.partition_index),
                OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=self.now if committed_at == -1 else committed_at,
                    expire_timestamp=-1 if retention == -1 else self.now + retention,
                    topic_id=topic_id,
                ),
            )
        )
        return ErrorCode.NONE


# --- OffsetFetch


def fetch(
    offsets: Offsets,
    group: Group | None,
    request: OffsetFetchRequestGroup,
    version: int,
    topics: Topics,
    *,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    """What a group has committed, in all partitions where the request names none.

    With `require_stable` an offset that an open transaction may change is not told.
    """
    if isinstance(group, ConsumerGroup):
        error = offset_checks.may_fetch(group, request.member_id, request.member_epoch)
        if error:
            return OffsetFetchResponseGroup(request.group_id, [], error)
    committed = {} if group is None else offsets.of(request.group_id)
    response = OffsetFetchResponseGroup(request.group_id)
    by_id = version >= _TOPIC_ID_VERSION
    if request.topics is None:
        for name, partitions in committed.items():
            topic_id = topics.topic_id(name) if by_id else ZERO_UUID
            if topic_id is None:
                continue
            answer = OffsetFetchResponseTopics(name, topic_id)
            answer.partitions.extend(_fetched(p, value) for p, value in partitions.items())
            response.topics.append(answer)
    else:
        for topic in request.topics:
            response.topics.append(_fetch_topic(committed, topic, topics, by_id=by_id))
    if require_stable and offsets.pending.has_open(request.group_id):
        _leave_out_unstable(offsets.pending, response, topics, by_id=by_id)
    return response


def _leave_out_unstable(
    pending: PendingOffsets, response: OffsetFetchResponseGroup, topics: Topics, *, by_id: bool
) -> None:
    for topic in response.topics:
        name = topics.topic_name(topic.topic_id) if by_id else topic.name
        topic.partitions = [
            OffsetFetchResponsePartitions(
                p.partition_index, -1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
            )
            if name is not None and pending.is_open(response.group_id, name, p.partition_index)
            else p
            for p in topic.partitions
        ]


def _fetch_topic(
    committed: dict[str, Partitions],
    topic: OffsetFetchRequestTopics,
    topics: Topics,
    *,
    by_id: bool,
) -> OffsetFetchResponseTopics:
    name = topics.topic_name(topic.topic_id) if by_id else topic.name
    answer = OffsetFetchResponseTopics(topic.name, topic.topic_id)
    if name is None:
        answer.partitions.extend(
            OffsetFetchResponsePartitions(p, -1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for p in topic.partition_indexes
        )
        return answer
    partitions = committed.get(name, {})
    for partition in topic.partition_indexes:
        value = partitions.get(partition)
        if value is not None and by_id and value.topic_id not in (ZERO_UUID, topic.topic_id):
            # It was committed for an earlier topic of this name.
            value = None
        answer.partitions.append(_fetched(partition, value))
    return answer


def _fetched(partition: int, value: OffsetCommitValue | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(partition, -1)
    return OffsetFetchResponsePartitions(
        partition, value.offset, value.leader_epoch, value.metadata
    )


# --- OffsetDelete


def may_delete_offsets(group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    if group.state is not ClassicGroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def delete(
    offsets: Offsets, group: Group, request: OffsetDeleteRequest, topics: Topics
) -> tuple[list[OffsetRecord], list[OffsetDeleteResponseTopic]]:
    """Records and topics of the response. What members of the group read is kept."""
    records: list[OffsetRecord] = []
    answers: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            error = ErrorCode.NONE
            if not topics.has_partition(topic.name, index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.is_subscribed_to(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif offsets.has(group.group_id, topic.name, index):
                records.append(offset_tombstone(group.group_id, topic.name, index))
            answer.partitions.append(OffsetDeleteResponsePartition(index, error))
        answers.append(answer)
    return records, answers


# --- expiry


def expired(
    offsets: Offsets, group: Group, now: int, retention_ms: int
) -> tuple[list[OffsetRecord], bool]:
    """Tombstones of the offsets that have expired, and whether that is all of them."""
    committed = offsets.of(group.group_id)
    pending = offsets.pending
    nothing_open = not pending.has_open(group.group_id)
    if not committed:
        return [], nothing_open
    base = _expiry_base(group)
    if base is None:
        return [], False
    records: list[OffsetRecord] = []
    everything = True
    for topic, partitions in committed.items():
        if group.is_subscribed_to(topic):
            everything = False
            continue
        for partition, value in partitions.items():
            if value.expire_timestamp >= 0:
                over = now >= value.expire_timestamp
            else:
                over = now - base(value) >= retention_ms
            if over and not pending.is_open(group.group_id, topic, partition):
                records.append(offset_tombstone(group.group_id, topic, partition))
            else:
                everything = False
    return records, everything and nothing_open


def _expiry_base(group: Group) -> Callable[[OffsetCommitValue], int] | None:
    """From when on the retention of a group's offsets counts; None where they are kept."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return _committed_at
    if group.state is ClassicGroupState.EMPTY:
        since = group.state_timestamp
        return _committed_at if since == -1 else lambda value: since
    stable_consumers = group.uses_consumer_protocol and group.state is ClassicGroupState.STABLE
    if stable_consumers and group.subscribed_topics is not None:
        return _committed_at
    return None


def _committed_at(value: OffsetCommitValue) -> int:
    return value.commit_timestamp
