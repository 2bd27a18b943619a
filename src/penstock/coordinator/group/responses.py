"""Answers, and those that say only that something went wrong."""

from collections.abc import Sequence

from penstock.coordinator.group.classic.requests import leaving_members, left
from penstock.coordinator.group.events import Requested, Result, Timer
from penstock.coordinator.group.records import Record
from penstock.coordinator.machine import Response, SetTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_WHY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its log: retry",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator cannot write to its log now: retry",
    ErrorCode.NOT_COORDINATOR: (
        "this broker does not coordinate the group: look for its coordinator again"
    ),
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "the coordinator could not write this to its log: the broker's own log says why"
    ),
}
"""What is told beside the code, where a response has room for it."""


def error_response(request: Message, version: int, error: ErrorCode) -> Message:
    """The answer to a request that cannot be served: not the coordinator, loading, write failed.

    A request of `fan_out` is answered in the form of its parts.
    """
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=error, member_id=request.member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=error)
        case HeartbeatRequest():
            # While the group is being loaded nobody can tell: the member goes on.
            loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=error, error_message=_WHY.get(error))
        case LeaveGroupRequest():
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                members = leaving_members(request, version)
                gone = [MemberResponse(m.member_id, m.group_instance_id, error) for m in members]
                return left(gone, version)
            return LeaveGroupResponse(error_code=error)
        case OffsetCommitRequest():
            return _commit_refusal(request, error)
        case TxnOffsetCommitRequest():
            return _txn_commit_refusal(request, error)
        case OffsetFetchRequest():
            groups = [OffsetFetchResponseGroup(g.group_id, [], error) for g in request.groups]
            return OffsetFetchResponse(groups=groups)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error)
        case DescribeGroupsRequest():
            described = [
                DescribeGroupsDescribedGroup(error_code=error, group_id=g) for g in request.groups
            ]
            return DescribeGroupsResponse(groups=described)
        case ConsumerGroupDescribeRequest():
            answers = [
                ConsumerGroupDescribeDescribedGroup(error, _WHY.get(error), g)
                for g in request.group_ids
            ]
            return ConsumerGroupDescribeResponse(groups=answers)
        case ListGroupsRequest():
            return ListGroupsResponse(error_code=error)
        case DeleteGroupsRequest():
            results = [DeletableGroupResult(g, error) for g in request.groups_names]
            return DeleteGroupsResponse(results=results)
        case _:
            raise TypeError(f"{type(request).__name__} is not for a group coordinator")


def _commit_refusal(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(p.partition_index, error) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def answer(
    event: Requested,
    response: Message,
    records: Sequence[Record] = (),
    timers: Sequence[SetTimer[Timer]] = (),
) -> Result:
    responses = (Response(event.context.waiter, response),)
    return Result(event, records, responses=responses, timers=timers)


def refused(event: Requested, error: ErrorCode) -> Response:
    return Response(
        event.context.waiter, error_response(event.request, event.context.version, error)
    )


def refuse(event: Requested, error: ErrorCode) -> Result:
    return Result(event, responses=(refused(event, error),))


def _txn_commit_refusal(
    request: TxnOffsetCommitRequest, error: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    TxnOffsetCommitResponsePartition(p.partition_index, error)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
