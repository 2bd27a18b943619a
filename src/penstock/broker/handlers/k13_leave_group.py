"""LeaveGroup (13): versions 0 to 5: members leave their group (C3)."""

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.coordinator.group.request_chunks import CHUNK_SIZE, item_chunks
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


def handle(context: Context, request: Request, body: LeaveGroupRequest) -> HandlerResult:
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if len(body.members) <= CHUNK_SIZE:
        return context.groups.send(request, body, body.group_id)
    return _leave(context, request, body)


async def _leave(context: Context, request: Request, body: LeaveGroupRequest) -> Response:
    response = LeaveGroupResponse()
    async for members in context.pacer.each(item_chunks(body.members)):
        part = await context.groups.send(
            request, replace(body, members=list(members)), body.group_id
        )
        assert isinstance(part, LeaveGroupResponse)
        if part.error_code:
            return part
        response.members += part.members
    return response
