"""DescribeGroups (15): versions 0 to 6: members and state of classic groups (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
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
    pacer: Pacer
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: DescribeGroupsRequest) -> Response:
    allowed: list[str] = []
    refused: list[str] = []
    async for group_id in context.pacer.each(body.groups):
        is_allowed = context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
        )
        (allowed if is_allowed else refused).append(group_id)
    response = await context.groups.send_split(request, replace(body, groups=allowed))
    assert isinstance(response, DescribeGroupsResponse)
    if body.include_authorized_operations:
        async for group in context.pacer.each(response.groups):
            if not group.error_code:
                group.authorized_operations = context.authorizer.authorized_operations(
                    request.session, ResourceType.GROUP, group.group_id
                )
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response.groups += [
        DescribeGroupsDescribedGroup(code, group_id=group_id)
        async for group_id in context.pacer.each(refused)
    ]
    return response
