"""OffsetFetch (9): versions 0 to 10: how far groups have come, of several groups at once (C3)."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.security.acl import AclOperation, ResourceType

_FIRST_WITH_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Context:
    image: ClusterImage
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: OffsetFetchRequest) -> Response:
    if context.authorizer.acl_authorizer is None:
        return await context.groups.send_split(request, body)
    if request.version < _FIRST_WITH_GROUPS:
        return await _of_one_group(context, request, body)
    allowed = [each for each in body.groups if _may_see_group(context, request, each.group_id)]
    answer = await context.groups.send_split(request, replace(body, groups=allowed))
    assert isinstance(answer, OffsetFetchResponse)
    asked_for_all = {each.group_id for each in allowed if each.topics is None}
    for group in answer.groups:
        shown = [each for each in group.topics if _may_see_topic(context, request, each)]
        if group.group_id not in asked_for_all:
            _refuse(each for each in group.topics if each not in shown)
        else:
            group.topics = shown
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer.groups += [
        OffsetFetchResponseGroup(each.group_id, error_code=code)
        for each in body.groups
        if each not in allowed
    ]
    return answer


async def _of_one_group(context: Context, request: Request, body: OffsetFetchRequest) -> Response:
    if not _may_see_group(context, request, body.group_id):
        return OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = await context.groups.send_split(request, body)
    assert isinstance(answer, OffsetFetchResponse)
    shown = [each for each in answer.topics if _may_see_topic(context, request, each)]
    if body.topics is not None:
        _refuse(each for each in answer.topics if each not in shown)
    else:
        answer.topics = shown
    return answer


def _refuse(topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]) -> None:
    """For topics that the client named. Of others it must not even learn the names."""
    for topic in topics:
        for partition in topic.partitions:
            partition.committed_offset = partition.committed_leader_epoch = -1
            partition.metadata = ""
            partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _may_see_group(context: Context, request: Request, group_id: str) -> bool:
    return context.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
    )


def _may_see_topic(
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
