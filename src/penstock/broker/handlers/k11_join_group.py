"""JoinGroup (11): versions 0 to 9: a member joins a group and waits for the others (C3)."""

import asyncio
from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.security.acl import AclOperation, ResourceType

_NULL_PROTOCOL_NAME_VERSION = 7


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


def handle(context: Context, request: Request, body: JoinGroupRequest) -> HandlerResult:
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        error = error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _with_null_name(error) if request.version >= _NULL_PROTOCOL_NAME_VERSION else error
    future = context.groups.send(request, body, body.group_id)
    if request.version >= _NULL_PROTOCOL_NAME_VERSION:
        # Runs before the response is sent: callbacks are called in the order they were added.
        future.add_done_callback(_set_null_name)
    return future


def _set_null_name(future: "asyncio.Future[Message]") -> None:
    if not future.cancelled() and future.exception() is None:
        _with_null_name(future.result())


def _with_null_name(response: Message) -> Message:
    """Sets the protocol name to null if none was chosen, in versions that allow null."""
    if isinstance(response, JoinGroupResponse):
        response.protocol_name = response.protocol_name or None
    return response
