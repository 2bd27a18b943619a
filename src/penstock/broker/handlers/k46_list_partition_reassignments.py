"""ListPartitionReassignments (46), version 0: returns the reassignments in progress (R8).

Only the controller knows them: it does not tell brokers which replicas are added and removed.
"""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.reassignment import list_partition_reassignments
from penstock.controller.result import ControllerResult
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(
    context: Context, request: Request, body: ListPartitionReassignmentsRequest
) -> Response:
    context.authorizer.require(request.session, AclOperation.DESCRIBE)
    return await context.controller.run(
        lambda image: ControllerResult([], list_partition_reassignments(image, body)), request
    )
