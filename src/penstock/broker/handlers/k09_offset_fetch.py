"""OffsetFetch (9): versions 0 to 10: committed offsets of one or more groups (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.coordinator.group.multi_group_requests import merge
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.security.acl import AclOperation, ResourceType

_SEVERAL_GROUPS_VERSION = 8


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: OffsetFetchRequest) -> Response:
    if context.authorizer.acl_authorizer is None:
        return await context.groups.send_split(request, body)
    if request.version < _SEVERAL_GROUPS_VERSION:
        return await _fetch_one_group(context, request, body)
    allowed: list[OffsetFetchRequestGroup] = []
    refused: list[OffsetFetchRequestGroup] = []
    async for group in context.pacer.each(body.groups):
        is_allowed = _can_describe_group(context, request, group.group_id)
        (allowed if is_allowed else refused).append(group)
    response = await context.groups.send_split(request, replace(body, groups=allowed))
    assert isinstance(response, OffsetFetchResponse)
    all_topics = {group.group_id for group in allowed if group.topics is None}
    async for fetched in context.pacer.each(response.groups):
        visible: list[OffsetFetchResponseTopics] = []
        async for topic in context.pacer.each(fetched.topics):
            if _can_describe_topic(context, request, topic):
                visible.append(topic)
            else:
                _refuse(topic)
        if fetched.group_id in all_topics:
            fetched.topics = visible
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response.groups += [
        OffsetFetchResponseGroup(group.group_id, error_code=code)
        async for group in context.pacer.each(refused)
    ]
    return response


async def _fetch_one_group(
    context: Context, request: Request, body: OffsetFetchRequest
) -> Response:
    if not _can_describe_group(context, request, body.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        refused = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(body.group_id, [], code)])
        return merge(body, request.version, [refused])
    response = await context.groups.send_split(request, body)
    assert isinstance(response, OffsetFetchResponse)
    visible: list[OffsetFetchResponseTopic] = []
    async for topic in context.pacer.each(response.topics):
        if _can_describe_topic(context, request, topic):
            visible.append(topic)
        else:
            _refuse(topic)
    if body.topics is None:
        response.topics = visible
    return response


def _refuse(topic: OffsetFetchResponseTopic | OffsetFetchResponseTopics) -> None:
    """Hides the offsets of a topic that the client named; other topics are not even named."""
    for partition in topic.partitions:
        partition.committed_offset = partition.committed_leader_epoch = -1
        partition.metadata = ""
        partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _can_describe_group(context: Context, request: Request, group_id: str) -> bool:
    return context.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
    )


def _can_describe_topic(
    context: Context,
    request: Request,
    topic: OffsetFetchResponseTopic | OffsetFetchResponseTopics,
) -> bool:
    name = topic.name
    if isinstance(topic, OffsetFetchResponseTopics) and not name:
        name = context.image.topic_names.get(topic.topic_id, "")
    return context.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, name
    )
