"""OffsetCommit and OffsetFetch: requests for every version, and what their answers say (C3)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.client.consumer.group.actions import Identity
from penstock.client.consumer.group.explain import code_of
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import IllegalStateError
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NEWEST_VERSION: Final = 9
"""Of both; the next ones name topics by their ids, which a consumer need not know."""

MEMBERSHIP_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Errors of a commit that say something about who commits."""

COORDINATOR_ERRORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the coordinator is looked for again."""


def commit_request(
    group_id: str, who: Identity, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        if position.offset < 0:
            raise IllegalStateError(
                f"offset {position.offset} of {topic}-{partition} cannot be committed: offsets "
                "begin at 0"
            )
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition,
                position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id,
        who.generation_or_epoch,
        who.member_id,
        who.group_instance_id,
        topics=[OffsetCommitRequestTopic(name, partitions=of) for name, of in by_topic.items()],
    )


def commit_errors(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): code_of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code
    }


def fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition],
    who: Identity | None,
) -> Callable[[int], Message]:
    """`who` only for members of a consumer group (KIP-848): their epoch is checked.

    Offsets that a transaction is about to change are waited for (KIP-447), whatever the isolation
    level is: who goes on from the old ones would do the work of that transaction again.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)

    def make(version: int) -> Message:
        stable = version >= 7
        if version < 8:
            topics = [OffsetFetchRequestTopic(name, of) for name, of in by_topic.items()]
            return OffsetFetchRequest(group_id, topics, require_stable=stable)
        group = OffsetFetchRequestGroup(
            group_id,
            topics=[
                OffsetFetchRequestTopics(name, partition_indexes=of)
                for name, of in by_topic.items()
            ],
        )
        if who is not None:
            group.member_id, group.member_epoch = who.member_id, who.generation_or_epoch
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    return make


class Fetched(NamedTuple):
    """What an OffsetFetch found. `offsets` has None where nothing is committed."""

    error: ErrorCode
    offsets: dict[TopicPartition, OffsetAndMetadata | None]
    errors: dict[TopicPartition, ErrorCode]


def fetched_offsets(response: OffsetFetchResponse) -> Fetched:
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    group = response.groups[0] if response.groups else response
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                errors[partition] = code_of(each.error_code)
            elif each.committed_offset < 0:
                offsets[partition] = None
            else:
                offsets[partition] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
    return Fetched(code_of(group.error_code), offsets, errors)


def leave_request(request: LeaveGroupRequest) -> Callable[[int], Message]:
    """Versions 0 to 2 have one member, without an instance id."""

    def make(version: int) -> Message:
        if version >= 3:
            return request
        return LeaveGroupRequest(request.group_id, request.members[0].member_id)

    return make
