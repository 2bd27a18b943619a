"""Error responses of the group coordinator: not the coordinator, still loading, write failed."""

from collections.abc import Mapping

from penstock.coordinator.group.events import Event, Requested
from penstock.coordinator.group.group_type import ErrorResponse
from penstock.coordinator.group.group_types import ERROR_RESPONSES
from penstock.coordinator.machine import Response
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.protocol.messages.join_group import JoinGroupResponse
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
from penstock.protocol.messages.sync_group import SyncGroupResponse
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def error_response(request: Message, version: int, error: ErrorCode) -> Message:
    """Returns the response to a request that is not handled, with the error wherever it belongs.

    A request that `multi_group_requests` splits must be one of its parts.
    """
    responder = _RESPONDERS.get(type(request))
    if responder is None:
        raise TypeError(f"{type(request).__name__} is not for a group coordinator")
    return responder(request, version, error)


def error_to(event: Requested, error: ErrorCode) -> Response:
    """Returns the error response to the request of an event."""
    message = error_response(event.request, event.context.version, error)
    return Response(event.context.waiter, message)


def replace_by_error(response: Response, event: Event | None, error: ErrorCode) -> Response:
    """Returns an error for a response whose records could not be committed.

    A response to another request than the event's is one to a member of a classic group that
    waited.
    """
    if isinstance(event, Requested) and response.waiter == event.context.waiter:
        return error_to(event, error)
    if isinstance(response.message, JoinGroupResponse):
        member_id = response.message.member_id
        return Response(response.waiter, JoinGroupResponse(error_code=error, member_id=member_id))
    return Response(response.waiter, SyncGroupResponse(error_code=error))


def _commit_error(request: OffsetCommitRequest, version: int, error: ErrorCode) -> Message:
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


def _txn_commit_error(request: TxnOffsetCommitRequest, version: int, error: ErrorCode) -> Message:
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


def _fetch_error(request: OffsetFetchRequest, version: int, error: ErrorCode) -> Message:
    groups = [OffsetFetchResponseGroup(group.group_id, [], error) for group in request.groups]
    return OffsetFetchResponse(groups=groups)


def _delete_error(request: DeleteGroupsRequest, version: int, error: ErrorCode) -> Message:
    results = [DeletableGroupResult(group_id, error) for group_id in request.groups_names]
    return DeleteGroupsResponse(results=results)


_RESPONDERS: Mapping[type[Message], ErrorResponse] = {
    OffsetCommitRequest: _commit_error,
    TxnOffsetCommitRequest: _txn_commit_error,
    OffsetFetchRequest: _fetch_error,
    OffsetDeleteRequest: lambda request, version, error: OffsetDeleteResponse(error_code=error),
    ListGroupsRequest: lambda request, version, error: ListGroupsResponse(error_code=error),
    DeleteGroupsRequest: _delete_error,
    **ERROR_RESPONSES,
}
