"""JoinGroup (11): versions 0 to 9: a member joins a group, and waits for the others (C3)."""

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

_FIRST_WITHOUT_NAME = 7


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


def handle(context: Context, request: Request, body: JoinGroupRequest) -> HandlerResult:
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        refused = error_response(body, request.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _named(refused) if request.version >= _FIRST_WITHOUT_NAME else refused
    waiting = context.groups.send(request, body, body.group_id)
    if request.version >= _FIRST_WITHOUT_NAME:
        # Runs before the answer is sent: callbacks are called in the order they were added.
        waiting.add_done_callback(_answered)
    return waiting


def _answered(waiting: "asyncio.Future[Message]") -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        _named(waiting.result())


def _named(answer: Message) -> Message:
    """Where no protocol was chosen its name is null, in versions that have a null for it."""
    if isinstance(answer, JoinGroupResponse):
        answer.protocol_name = answer.protocol_name or None
    return answer
