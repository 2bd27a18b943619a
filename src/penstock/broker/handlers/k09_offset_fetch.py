"""OffsetFetch (9): versions 0 to 10: how far groups have come, of several groups at once (C3)."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.request import Answer, Request
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_FIRST_WITH_GROUPS = 8


async def handle(broker: "Broker", request: Request, body: OffsetFetchRequest) -> Answer:
    if broker.access.authorizer is None:
        return await broker.groups.ask_all(request, body)
    if request.version < _FIRST_WITH_GROUPS:
        return await _of_one_group(broker, request, body)
    allowed = [each for each in body.groups if _may_see_group(broker, request, each.group_id)]
    answer = await broker.groups.ask_all(request, replace(body, groups=allowed))
    assert isinstance(answer, OffsetFetchResponse)
    for group in answer.groups:
        _hide_topics(broker, request, group)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer.groups += [
        OffsetFetchResponseGroup(each.group_id, error_code=code)
        for each in body.groups
        if each not in allowed
    ]
    return answer


async def _of_one_group(broker: "Broker", request: Request, body: OffsetFetchRequest) -> Answer:
    if not _may_see_group(broker, request, body.group_id):
        return OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = await broker.groups.ask_all(request, body)
    assert isinstance(answer, OffsetFetchResponse)
    for topic in answer.topics:
        if not _may_see_topic(broker, request, topic.name):
            for partition in topic.partitions:
                partition.committed_offset = -1
                partition.metadata = ""
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return answer


def _hide_topics(broker: "Broker", request: Request, group: OffsetFetchResponseGroup) -> None:
    for topic in group.topics:
        if not _may_see_topic(broker, request, _name_of(broker, topic)):
            for partition in topic.partitions:
                partition.committed_offset = -1
                partition.metadata = ""
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _name_of(broker: "Broker", topic: OffsetFetchResponseTopics) -> str:
    return topic.name or broker.image.topic_names.get(topic.topic_id, "")


def _may_see_group(broker: "Broker", request: Request, group_id: str) -> bool:
    return broker.access.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
    )


def _may_see_topic(broker: "Broker", request: Request, name: str) -> bool:
    return broker.access.allows(request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
