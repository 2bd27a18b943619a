"""DeleteGroups (42): versions 0 to 3: deletes groups without members and their offsets (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: DeleteGroupsRequest) -> Response:
    allowed = [
        group_id
        for group_id in body.groups_names
        if context.authorizer.allows(
            request.session, AclOperation.DELETE, ResourceType.GROUP, group_id
        )
    ]
    response = await context.groups.send_split(request, replace(body, groups_names=allowed))
    assert isinstance(response, DeleteGroupsResponse)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response.results += [
        DeletableGroupResult(group_id, code)
        for group_id in body.groups_names
        if group_id not in allowed
    ]
    return response
