"""OffsetCommit and OffsetFetch: their requests for every version, and their responses (C3)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.client.consumer.group.actions import Identity
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import IllegalStateError, error_code_of
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
"""The newest version of both APIs that has the names of topics; later ones have their ids."""

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
"""Errors of a commit that concern the membership."""

COORDINATOR_ERRORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the coordinator is looked up again."""


def commit_request(
    group_id: str, identity: Identity, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        if position.offset < 0:
            raise IllegalStateError(
                f"offset {position.offset} of {topic}-{partition} cannot be committed: offsets "
                "start at 0"
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
        identity.generation_or_epoch,
        identity.member_id,
        identity.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )


def commit_errors(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): error_code_of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code
    }


def fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition],
    identity: Identity | None,
) -> Callable[[int], Message]:
    """Returns a function from the version to the request.

    `identity` is given for members with the consumer protocol, whose epoch the broker checks. The
    request is for stable offsets (KIP-447) whatever the isolation level is: a consumer that starts
    before those of an open transaction would repeat its work.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)

    def make(version: int) -> Message:
        require_stable = version >= 7
        if version < 8:
            topics = [OffsetFetchRequestTopic(name, indexes) for name, indexes in by_topic.items()]
            return OffsetFetchRequest(group_id, topics, require_stable=require_stable)
        group = OffsetFetchRequestGroup(
            group_id,
            topics=[
                OffsetFetchRequestTopics(name, partition_indexes=indexes)
                for name, indexes in by_topic.items()
            ],
        )
        if identity is not None:
            group.member_id, group.member_epoch = identity.member_id, identity.generation_or_epoch
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)

    return make


class OffsetFetchResult(NamedTuple):
    """The content of an OffsetFetch response. `offsets` has None for no committed offset."""

    error: ErrorCode
    offsets: dict[TopicPartition, OffsetAndMetadata | None]
    errors: dict[TopicPartition, ErrorCode]


def read_offset_fetch(response: OffsetFetchResponse) -> OffsetFetchResult:
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    group = response.groups[0] if response.groups else response
    for topic in group.topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.name, data.partition_index)
            if data.error_code:
                errors[partition] = error_code_of(data.error_code)
            elif data.committed_offset < 0:
                offsets[partition] = None
            else:
                offsets[partition] = OffsetAndMetadata(
                    data.committed_offset, data.metadata or "", data.committed_leader_epoch
                )
    return OffsetFetchResult(error_code_of(group.error_code), offsets, errors)


def leave_request(request: LeaveGroupRequest) -> Callable[[int], Message]:
    """Returns a function from the version to the request; versions 0 to 2 have one member."""

    def make(version: int) -> Message:
        if version >= 3:
            return request
        return LeaveGroupRequest(request.group_id, request.members[0].member_id)

    return make
