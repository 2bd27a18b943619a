"""Requests that name groups of several shards: split by shard, and their responses merged.

    parts = split(request, version, partitions)
    response = merge(request, version, [response of each part, in the order of the parts])

Every other request names one group, and its `group_id` determines the shard.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from penstock.coordinator.group.group_type import DescribeRequest
from penstock.coordinator.group.group_types import DESCRIBE_REQUESTS
from penstock.coordinator.partitioning import partition_for
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
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

MULTI_GROUP_REQUESTS: Mapping[type[Message], DescribeRequest] = {
    DeleteGroupsRequest: DescribeRequest(
        group_ids=lambda request: request.groups_names,
        part=lambda request, group_ids: DeleteGroupsRequest(group_ids),
        results=lambda response: response.results,
        response=lambda results: DeleteGroupsResponse(results=results),
    ),
    **DESCRIBE_REQUESTS,
}


class Part(NamedTuple):
    """The part of a request for one shard."""

    partition: int
    request: Message


def split(request: Message, version: int, partitions: int) -> list[Part]:
    """Splits a request by partition of `__consumer_offsets`.

    The parts of OffsetFetch have the form of version 8, whatever the version. ListGroups goes to
    every partition; the host keeps the parts whose partitions it leads.
    """
    if isinstance(request, ListGroupsRequest):
        return [Part(partition, request) for partition in range(partitions)]
    if isinstance(request, OffsetFetchRequest):
        groups = _groups(request, version)
        by_partition = _by_partition([(group.group_id, group) for group in groups], partitions)
        return [
            Part(p, OffsetFetchRequest(groups=part, require_stable=request.require_stable))
            for p, part in by_partition
        ]
    kind = MULTI_GROUP_REQUESTS[type(request)]
    group_ids = kind.group_ids(request)
    ids_by_partition = _by_partition([(group_id, group_id) for group_id in group_ids], partitions)
    return [Part(p, kind.part(request, part)) for p, part in ids_by_partition]


def merge(request: Message, version: int, responses: Sequence[Message]) -> Message:
    """Returns one response, with its groups in the order of the request."""
    if isinstance(request, ListGroupsRequest):
        return _merge_lists(cast("Sequence[ListGroupsResponse]", responses))
    if isinstance(request, OffsetFetchRequest):
        fetches = cast("Sequence[OffsetFetchResponse]", responses)
        groups = [group for response in fetches for group in response.groups]
        return _fetch_response(request, version, groups)
    kind = MULTI_GROUP_REQUESTS[type(request)]
    results = [result for response in responses for result in kind.results(response)]
    return kind.response(_in_order(kind.group_ids(request), results))


def _merge_lists(responses: Sequence[ListGroupsResponse]) -> ListGroupsResponse:
    for response in responses:
        if response.error_code:
            return ListGroupsResponse(error_code=response.error_code)
    return ListGroupsResponse(groups=[group for response in responses for group in response.groups])


T = TypeVar("T")
"""What a request has for each group: its id, or a struct."""


def _by_partition(
    groups: Iterable[tuple[str, T]], partitions: int
) -> Iterable[tuple[int, list[T]]]:
    grouped: dict[int, list[T]] = {}
    for group_id, group in groups:
        grouped.setdefault(partition_for(group_id, partitions), []).append(group)
    return grouped.items()


def _in_order(group_ids: Iterable[str], results: Iterable[Any]) -> list[Any]:
    by_id = {result.group_id: result for result in results}
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
                OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes)
                for topic in topics
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
    """Returns an error for each partition: the oldest versions have no field for the group's."""
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
