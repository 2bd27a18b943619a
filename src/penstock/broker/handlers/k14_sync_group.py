"""SyncGroup (14): versions 0 to 5: members fetch the leader's assignment (C3)."""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.security.acl import AclOperation, ResourceType

_PROTOCOL_VERSION = 5


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


def handle(context: Context, request: Request, body: SyncGroupRequest) -> HandlerResult:
    if request.version >= _PROTOCOL_VERSION and (
        body.protocol_type is None or body.protocol_name is None
    ):
        return error_response(body, request.version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return context.groups.send(request, body, body.group_id)
