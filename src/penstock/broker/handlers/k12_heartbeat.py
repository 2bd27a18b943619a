"""Heartbeat (12): versions 0 to 4: keeps a member of a group alive (C3)."""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


def handle(context: Context, request: Request, body: HeartbeatRequest) -> HandlerResult:
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return context.groups.send(request, body, body.group_id)
