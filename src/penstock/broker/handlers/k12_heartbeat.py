"""Heartbeat (12): versions 0 to 4: a member is alive (C3)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: HeartbeatRequest) -> HandlerResult:
    if not broker.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return broker.groups.send(request, body, body.group_id)
