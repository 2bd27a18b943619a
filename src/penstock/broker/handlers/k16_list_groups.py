"""ListGroups (16): versions 0 to 5: the groups of this broker, by state and type."""

from dataclasses import dataclass
from typing import Final

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import CLUSTER_NAME, RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.security.acl import AclOperation, ResourceType

MAX_FILTERS: Final = 100
"""Kafka has fewer than twenty states and types of groups."""


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: ListGroupsRequest) -> Response:
    if len(body.states_filter) + len(body.types_filter) > MAX_FILTERS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"more than {MAX_FILTERS} states and types of groups",
            remedy="name each of them once",
        )
    response = await context.groups.send_split(request, body)
    assert isinstance(response, ListGroupsResponse)
    session = request.session
    if not context.authorizer.would_allow(
        session, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        response.groups = [
            group
            async for group in context.pacer.each(response.groups)
            if context.authorizer.would_allow(
                session, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id
            )
        ]
    return response
