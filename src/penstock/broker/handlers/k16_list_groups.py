"""ListGroups (16): versions 0 to 5: the groups that this broker keeps, by state and type."""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import CLUSTER_NAME, RequestAuthorizer
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


async def handle(context: Context, request: Request, body: ListGroupsRequest) -> Response:
    answer = await context.groups.send_split(request, body)
    assert isinstance(answer, ListGroupsResponse)
    session = request.session
    if not context.authorizer.allows(
        session, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        answer.groups = [
            each
            for each in answer.groups
            if context.authorizer.allows(
                session, AclOperation.DESCRIBE, ResourceType.GROUP, each.group_id
            )
        ]
    return answer
