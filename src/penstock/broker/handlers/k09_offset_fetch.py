"""OffsetFetch (9): versions 0 to 10: how far groups have come, of several groups at once (C3)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.request import Request, Response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_FIRST_WITH_GROUPS = 8


async def handle(broker: "Broker", request: Request, body: OffsetFetchRequest) -> Response:
    if broker.authorizer.acl_authorizer is None:
        return await broker.groups.send_split(request, body)
    if request.version < _FIRST_WITH_GROUPS:
        return await _of_one_group(broker, request, body)
    allowed = [each for each in body.groups if _may_see_group(broker, request, each.group_id)]
    answer = await broker.groups.send_split(request, replace(body, groups=allowed))
    assert isinstance(answer, OffsetFetchResponse)
    asked_for_all = {each.group_id for each in allowed if each.topics is None}
    for group in answer.groups:
        shown = [each for each in group.topics if _may_see_topic(broker, request, each)]
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


async def _of_one_group(broker: "Broker", request: Request, body: OffsetFetchRequest) -> Response:
    if not _may_see_group(broker, request, body.group_id):
        return OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = await broker.groups.send_split(request, body)
    assert isinstance(answer, OffsetFetchResponse)
    shown = [each for each in answer.topics if _may_see_topic(broker, request, each)]
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


def _may_see_group(broker: "Broker", request: Request, group_id: str) -> bool:
    return broker.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
    )


def _may_see_topic(
    broker: "Broker",
    request: Request,
    topic: OffsetFetchResponseTopic | OffsetFetchResponseTopics,
) -> bool:
    name = topic.name
    if isinstance(topic, OffsetFetchResponseTopics) and not name:
        name = broker.image.topic_names.get(topic.topic_id, "")
    return broker.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, name
    )
