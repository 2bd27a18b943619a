"""SyncGroup (14): versions 0 to 5: the leader's assignment for everybody (C3)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


_FIRST_WITH_PROTOCOL = 5


def handle(broker: "Broker", request: Request, body: SyncGroupRequest) -> HandlerResult:
    if request.version >= _FIRST_WITH_PROTOCOL and (
        body.protocol_type is None or body.protocol_name is None
    ):
        return error_response(body, request.version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not broker.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return broker.groups.send(request, body, body.group_id)
