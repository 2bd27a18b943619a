"""ConsumerGroupDescribe (69): versions 0 to 1: members and assignments of KIP-848 groups (C3)."""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
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
    pacer: Pacer
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(
    context: Context, request: Request, body: ConsumerGroupDescribeRequest
) -> Response:
    try:
        context.groups.require_consumer_groups()
    except KafkaError as error:
        return ConsumerGroupDescribeResponse(
            groups=[_error(name, error) async for name in context.pacer.each(body.group_ids)]
        )
    refused = []
    allowed = []
    async for name in context.pacer.each(body.group_ids):
        try:
            context.authorizer.require(
                request.session, AclOperation.DESCRIBE, ResourceType.GROUP, name
            )
        except KafkaError as error:
            refused.append(_error(name, error))
        else:
            allowed.append(name)
    response = await context.groups.send_split(request, ConsumerGroupDescribeRequest(allowed))
    assert isinstance(response, ConsumerGroupDescribeResponse)
    described = [
        _check_topics(context, request, group)
        async for group in context.pacer.each(response.groups)
    ]
    if body.include_authorized_operations:
        async for group in context.pacer.each(described):
            if not group.error_code:
                group.authorized_operations = context.authorizer.authorized_operations(
                    request.session, ResourceType.GROUP, group.group_id
                )
    return ConsumerGroupDescribeResponse(groups=[*refused, *described])


def _check_topics(
    context: Context, request: Request, group: ConsumerGroupDescribeDescribedGroup
) -> ConsumerGroupDescribeDescribedGroup:
    """Returns the group, or an error if it reads topics that the client may not DESCRIBE (X3)."""
    topics = {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
    if all(
        context.authorizer.allows(request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        for topic in topics
    ):
        return group
    error = KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "the group reads topics that this client may not DESCRIBE",
        remedy="add ACLs that allow it",
    )
    return _error(group.group_id, error)


def _error(group_id: str, error: KafkaError) -> ConsumerGroupDescribeDescribedGroup:
    return ConsumerGroupDescribeDescribedGroup(error.code, error.message, group_id)
