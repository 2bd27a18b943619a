"""DescribeGroups (15): versions 0 to 6: members and state of classic groups (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: DescribeGroupsRequest) -> Response:
    allowed = [
        group_id
        for group_id in body.groups
        if context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
        )
    ]
    response = await context.groups.send_split(request, replace(body, groups=allowed))
    assert isinstance(response, DescribeGroupsResponse)
    if body.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = context.authorizer.authorized_operations(
                    request.session, ResourceType.GROUP, group.group_id
                )
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response.groups += [
        DescribeGroupsDescribedGroup(code, group_id=group_id)
        for group_id in body.groups
        if group_id not in allowed
    ]
    return response
