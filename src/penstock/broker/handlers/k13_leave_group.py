"""LeaveGroup (13): versions 0 to 5: members leave their group (C3)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: LeaveGroupRequest) -> HandlerResult:
    if not broker.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return broker.groups.send(request, body, body.group_id)
