"""AlterPartitionReassignments (45), versions 0 and 1: changes replicas of partitions (R8)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.reassignment import alter_partition_reassignments
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(
    context: Context, request: Request, body: AlterPartitionReassignmentsRequest
) -> Response:
    context.authorizer.require(request.session, AclOperation.ALTER)
    return await context.controller.run_election(
        lambda image, rules: alter_partition_reassignments(image, body, rules), request
    )
