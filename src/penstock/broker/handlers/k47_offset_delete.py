"""OffsetDelete (47): version 0: deletes offsets of topics that a group does not read (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.coordinator.group.request_chunks import merge_topics, topic_chunks
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: OffsetDeleteRequest) -> Response:
    session = request.session
    if not context.authorizer.allows(
        session, AclOperation.DELETE, ResourceType.GROUP, body.group_id
    ):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteRequestTopic] = []
    async for topic in context.pacer.each(body.topics):
        is_allowed = context.authorizer.allows(
            session, AclOperation.READ, ResourceType.TOPIC, topic.name
        )
        (allowed if is_allowed else refused).append(topic)
    response = OffsetDeleteResponse()
    async for topics in context.pacer.each(topic_chunks(allowed)):
        part = await context.groups.send(request, replace(body, topics=topics), body.group_id)
        assert isinstance(part, OffsetDeleteResponse)
        if part.error_code:
            return part
        merge_topics(response.topics, part.topics)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async for topic in context.pacer.each(refused):
        partitions = [
            OffsetDeleteResponsePartition(partition.partition_index, code)
            for partition in topic.partitions
        ]
        response.topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
    return response
