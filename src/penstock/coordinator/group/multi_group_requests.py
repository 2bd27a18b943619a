"""Requests that name groups of several shards: one part for each, and one answer from the parts.

    parts = split(request, version, partitions)
    response = merge(request, version, [response of each part, in the order of the parts])

Every other request names one group, and `group_id` in it says to which shard it goes.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from penstock.coordinator.partitioning import partition_of
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
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
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_SEVERAL_GROUPS_VERSION = 8
_GROUP_ERROR_VERSION = 2

MultiGroupRequest = (
    OffsetFetchRequest
    | DescribeGroupsRequest
    | ConsumerGroupDescribeRequest
    | DeleteGroupsRequest
    | ListGroupsRequest
)
MultiGroupResponse = (
    OffsetFetchResponse
    | DescribeGroupsResponse
    | ConsumerGroupDescribeResponse
    | DeleteGroupsResponse
    | ListGroupsResponse
)
_Answer = TypeVar(
    "_Answer",
    OffsetFetchResponseGroup,
    DescribeGroupsDescribedGroup,
    ConsumerGroupDescribeDescribedGroup,
    DeletableGroupResult,
)


class Part(NamedTuple):
    """What one shard is asked."""

    partition: int
    request: MultiGroupRequest


def split(request: MultiGroupRequest, version: int, partitions: int) -> list[Part]:
    """The parts of a request, by partition of `__consumer_offsets`.

    OffsetFetch gets the form of version 8 in all versions. ListGroups goes to every partition;
    the host keeps the parts whose partitions it leads.
    """
    match request:
        case ListGroupsRequest():
            return [Part(partition, request) for partition in range(partitions)]
        case OffsetFetchRequest():
            groups = _groups(request, version)
            return [
                Part(p, OffsetFetchRequest(groups=part, require_stable=request.require_stable))
                for p, part in _by_partition([(g.group_id, g) for g in groups], partitions)
            ]
        case DescribeGroupsRequest():
            named = _by_partition([(g, g) for g in request.groups], partitions)
            return [
                Part(p, DescribeGroupsRequest(part, request.include_authorized_operations))
                for p, part in named
            ]
        case ConsumerGroupDescribeRequest():
            named = _by_partition([(g, g) for g in request.group_ids], partitions)
            return [
                Part(p, ConsumerGroupDescribeRequest(part, request.include_authorized_operations))
                for p, part in named
            ]
        case DeleteGroupsRequest():
            named = _by_partition([(g, g) for g in request.groups_names], partitions)
            return [Part(p, DeleteGroupsRequest(part)) for p, part in named]


def merge(
    request: MultiGroupRequest, version: int, responses: Sequence[MultiGroupResponse]
) -> MultiGroupResponse:
    """One response, with its groups in the order of the request."""
    match request:
        case ListGroupsRequest():
            listed = ListGroupsResponse()
            for response in responses:
                assert isinstance(response, ListGroupsResponse)
                listed.error_code = listed.error_code or response.error_code
                listed.groups.extend(response.groups)
            return ListGroupsResponse(error_code=listed.error_code) if listed.error_code else listed
        case OffsetFetchRequest():
            fetched = [g for r in responses if isinstance(r, OffsetFetchResponse) for g in r.groups]
            return _fetch_response(request, version, fetched)
        case DescribeGroupsRequest():
            described = [
                g for r in responses if isinstance(r, DescribeGroupsResponse) for g in r.groups
            ]
            return DescribeGroupsResponse(groups=_in_order(request.groups, described))
        case ConsumerGroupDescribeRequest():
            found = [
                g
                for r in responses
                if isinstance(r, ConsumerGroupDescribeResponse)
                for g in r.groups
            ]
            return ConsumerGroupDescribeResponse(groups=_in_order(request.group_ids, found))
        case DeleteGroupsRequest():
            deleted = [
                g for r in responses if isinstance(r, DeleteGroupsResponse) for g in r.results
            ]
            return DeleteGroupsResponse(results=_in_order(request.groups_names, deleted))


_Named = TypeVar("_Named")


def _by_partition(
    named: Iterable[tuple[str, _Named]], partitions: int
) -> Iterable[tuple[int, list[_Named]]]:
    found: dict[int, list[_Named]] = {}
    for group_id, one in named:
        found.setdefault(partition_of(group_id, partitions), []).append(one)
    return found.items()


def _in_order(group_ids: Iterable[str], answers: Iterable[_Answer]) -> list[_Answer]:
    by_id: dict[str, _Answer] = {answer.group_id: answer for answer in answers}
    return [by_id[group_id] for group_id in group_ids if group_id in by_id]


def _groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    if version >= _SEVERAL_GROUPS_VERSION:
        return request.groups
    topics = request.topics
    return [
        OffsetFetchRequestGroup(
            request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(t.name, partition_indexes=t.partition_indexes)
                for t in topics
            ],
        )
    ]


def _fetch_response(
    request: OffsetFetchRequest, version: int, groups: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    if version >= _SEVERAL_GROUPS_VERSION:
        ids = [group.group_id for group in request.groups]
        return OffsetFetchResponse(groups=_in_order(ids, groups))
    group = groups[0]
    if group.error_code and version < _GROUP_ERROR_VERSION:
        return OffsetFetchResponse(topics=_error_topics(request, ErrorCode(group.error_code)))
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        p.partition_index,
                        p.committed_offset,
                        p.committed_leader_epoch,
                        p.metadata,
                        p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _error_topics(request: OffsetFetchRequest, error: ErrorCode) -> list[OffsetFetchResponseTopic]:
    """The oldest versions have no room for an error but at each partition."""
    return [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(p, -1, error_code=error)
                for p in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
