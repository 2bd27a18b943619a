"""JoinGroup (11): versions 0 to 9: a member joins a group, and waits for the others (C3)."""

from typing import TYPE_CHECKING

from penstock.broker.request import Reply, Request
from penstock.coordinator.group.replies import refusal
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: JoinGroupRequest) -> Reply:
    if not broker.access.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return refusal(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return broker.groups.ask(request, body, body.group_id)
