"""OffsetCommit (8): versions 0 to 10: commits offsets of a group (C3, C5).

Version 0, which stored offsets in ZooKeeper, stores them like all other versions.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.coordinator.group.request_chunks import merge_topics, topic_chunks
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.security.acl import AclOperation, ResourceType

_TOPIC_ID_VERSION = 10


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: OffsetCommitRequest) -> Response:
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.authorizer.acl_authorizer is None:
        return await _commit(context, request, body, body.topics)
    allowed: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitRequestTopic] = []
    async for topic in context.pacer.each(body.topics):
        (allowed if _can_read(context, request, topic) else refused).append(topic)
    response = await _commit(context, request, body, allowed)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async for topic in context.pacer.each(refused):
        partitions = [
            OffsetCommitResponsePartition(partition.partition_index, code)
            for partition in topic.partitions
        ]
        response.topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    return response


async def _commit(
    context: Context,
    request: Request,
    body: OffsetCommitRequest,
    topics: list[OffsetCommitRequestTopic],
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    async for chunk in context.pacer.each(topic_chunks(topics)):
        part = replace(body, topics=chunk)
        committed = await context.groups.send(request, part, body.group_id)
        assert isinstance(committed, OffsetCommitResponse)
        merge_topics(response.topics, committed.topics)
    return response


def _can_read(context: Context, request: Request, topic: OffsetCommitRequestTopic) -> bool:
    name: str | None = topic.name
    if request.version >= _TOPIC_ID_VERSION:
        name = context.image.topic_names.get(topic.topic_id)
    # The coordinator refuses a topic that does not exist.
    return name is None or context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.TOPIC, name
    )
