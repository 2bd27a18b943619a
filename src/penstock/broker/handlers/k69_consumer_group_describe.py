"""ConsumerGroupDescribe (69): versions 0 to 1: members and assignments of KIP-848 groups (C3)."""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(
    context: Context, request: Request, body: ConsumerGroupDescribeRequest
) -> Response:
    try:
        context.groups.require_consumer_groups()
    except KafkaError as error:
        return ConsumerGroupDescribeResponse(
            groups=[_failed(name, error) for name in body.group_ids]
        )
    hidden = []
    allowed = []
    for name in body.group_ids:
        try:
            context.authorizer.require(
                request.session, AclOperation.DESCRIBE, ResourceType.GROUP, name
            )
        except KafkaError as error:
            hidden.append(_failed(name, error))
        else:
            allowed.append(name)
    answer = await context.groups.send_split(request, ConsumerGroupDescribeRequest(allowed))
    assert isinstance(answer, ConsumerGroupDescribeResponse)
    found = [_seen(context, request, group) for group in answer.groups]
    if body.include_authorized_operations:
        for group in found:
            if not group.error_code:
                group.authorized_operations = context.authorizer.authorized_operations(
                    request.session, ResourceType.GROUP, group.group_id
                )
    return ConsumerGroupDescribeResponse(groups=[*hidden, *found])


def _seen(
    context: Context, request: Request, group: ConsumerGroupDescribeDescribedGroup
) -> ConsumerGroupDescribeDescribedGroup:
    """The group, unless it reads topics that the client may not know of (X3)."""
    topics = {
        each.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    }
    if all(
        context.authorizer.allows(request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        for topic in topics
    ):
        return group
    error = KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "the group reads topics that this client may not DESCRIBE: add ACLs that allow it",
    )
    return _failed(group.group_id, error)


def _failed(group_id: str, error: KafkaError) -> ConsumerGroupDescribeDescribedGroup:
    return ConsumerGroupDescribeDescribedGroup(error.code, error.message, group_id)
