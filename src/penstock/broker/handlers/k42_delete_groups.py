"""DeleteGroups (42): versions 0 to 3: deletes groups without members and their offsets (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
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
    pacer: Pacer
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: DeleteGroupsRequest) -> Response:
    allowed: list[str] = []
    refused: list[str] = []
    async for group_id in context.pacer.each(body.groups_names):
        is_allowed = context.authorizer.allows(
            request.session, AclOperation.DELETE, ResourceType.GROUP, group_id
        )
        (allowed if is_allowed else refused).append(group_id)
    response = await context.groups.send_split(request, replace(body, groups_names=allowed))
    assert isinstance(response, DeleteGroupsResponse)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response.results += [
        DeletableGroupResult(group_id, code) async for group_id in context.pacer.each(refused)
    ]
    return response
