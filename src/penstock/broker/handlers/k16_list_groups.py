"""ListGroups (16): versions 0 to 5: the groups that this broker keeps, by state and type."""

from typing import TYPE_CHECKING

from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import CLUSTER_NAME
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: ListGroupsRequest) -> Response:
    answer = await broker.groups.send_split(request, body)
    assert isinstance(answer, ListGroupsResponse)
    session = request.session
    if not broker.authorizer.allows(
        session, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        answer.groups = [
            each
            for each in answer.groups
            if broker.authorizer.allows(
                session, AclOperation.DESCRIBE, ResourceType.GROUP, each.group_id
            )
        ]
    return answer
