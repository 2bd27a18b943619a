"""OffsetCommit (8): versions 0 to 10: how far a group has come (C3, C5).

Version 0, which kept offsets in ZooKeeper, keeps them where all others do.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
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

_FIRST_WITH_TOPIC_IDS = 10


@dataclass(frozen=True, slots=True)
class Context:
    image: ClusterImage
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: OffsetCommitRequest) -> Response:
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.authorizer.acl_authorizer is None:
        return await context.groups.send(request, body, body.group_id)
    allowed = [topic for topic in body.topics if _may_read(context, request, topic)]
    answer = await context.groups.send(request, replace(body, topics=allowed), body.group_id)
    assert isinstance(answer, OffsetCommitResponse)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in body.topics:
        if topic not in allowed:
            partitions = [
                OffsetCommitResponsePartition(each.partition_index, code)
                for each in topic.partitions
            ]
            answer.topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    return answer


def _may_read(context: Context, request: Request, topic: OffsetCommitRequestTopic) -> bool:
    name: str | None = topic.name
    if request.version >= _FIRST_WITH_TOPIC_IDS:
        name = context.image.topic_names.get(topic.topic_id)
    # A topic that is not there is for the coordinator to refuse.
    return name is None or context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.TOPIC, name
    )
