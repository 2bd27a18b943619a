"""OffsetDelete (47): version 0: deletes offsets of topics that a group does not read (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: OffsetDeleteRequest) -> Response:
    session = request.session
    if not context.authorizer.allows(
        session, AclOperation.DELETE, ResourceType.GROUP, body.group_id
    ):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed = [
        topic
        for topic in body.topics
        if context.authorizer.allows(session, AclOperation.READ, ResourceType.TOPIC, topic.name)
    ]
    response = await context.groups.send(request, replace(body, topics=allowed), body.group_id)
    assert isinstance(response, OffsetDeleteResponse)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in body.topics:
        if topic not in allowed:
            partitions = [
                OffsetDeleteResponsePartition(partition.partition_index, code)
                for partition in topic.partitions
            ]
            response.topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
    return response
