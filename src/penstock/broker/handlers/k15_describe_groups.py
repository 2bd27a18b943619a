"""DescribeGroups (15): versions 0 to 6: members and state of groups (C3)."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.broker.request import Request, Response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: DescribeGroupsRequest) -> Response:
    allowed = [
        group_id
        for group_id in body.groups
        if broker.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
        )
    ]
    answer = await broker.groups.send_split(request, replace(body, groups=allowed))
    assert isinstance(answer, DescribeGroupsResponse)
    if body.include_authorized_operations:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = broker.authorizer.operations(
                    request.session, ResourceType.GROUP, group.group_id
                )
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer.groups += [
        DescribeGroupsDescribedGroup(code, group_id=group_id)
        for group_id in body.groups
        if group_id not in allowed
    ]
    return answer
