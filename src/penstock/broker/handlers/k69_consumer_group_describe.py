"""ConsumerGroupDescribe (69): versions 0 to 1: members and assignments of KIP-848 groups (C3)."""

from typing import TYPE_CHECKING

from penstock.broker.features import GROUP_VERSION
from penstock.broker.request import Answer, Request
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: ConsumerGroupDescribeRequest) -> Answer:
    if not broker.feature_level(GROUP_VERSION):
        refused = [_failed(name, ErrorCode.UNSUPPORTED_VERSION) for name in body.group_ids]
        return ConsumerGroupDescribeResponse(groups=refused)
    hidden = []
    allowed = []
    for name in body.group_ids:
        if broker.access.allows(request.session, AclOperation.DESCRIBE, ResourceType.GROUP, name):
            allowed.append(name)
        else:
            hidden.append(_failed(name, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    answer = await broker.groups.ask_all(request, ConsumerGroupDescribeRequest(allowed))
    assert isinstance(answer, ConsumerGroupDescribeResponse)
    found = [_seen(broker, request, group) for group in answer.groups]
    if body.include_authorized_operations:
        for group in found:
            if not group.error_code:
                group.authorized_operations = broker.access.operations(
                    request.session, ResourceType.GROUP, group.group_id
                )
    return ConsumerGroupDescribeResponse(groups=[*hidden, *found])


def _seen(
    broker: "Broker", request: Request, group: ConsumerGroupDescribeDescribedGroup
) -> ConsumerGroupDescribeDescribedGroup:
    """The group, unless it reads topics that the client may not know of (X3)."""
    topics = {
        each.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    }
    if all(
        broker.access.allows(request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        for topic in topics
    ):
        return group
    return _failed(
        group.group_id,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "the group reads topics that this client may not DESCRIBE: add ACLs that allow it",
    )


def _failed(
    group_id: str, error: ErrorCode, message: str | None = None
) -> ConsumerGroupDescribeDescribedGroup:
    return ConsumerGroupDescribeDescribedGroup(
        error_code=error, error_message=message, group_id=group_id
    )
