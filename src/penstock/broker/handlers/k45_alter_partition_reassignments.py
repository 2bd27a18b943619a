"""AlterPartitionReassignments (45): versions 0 and 1: partitions get other replicas (R8)."""

from typing import TYPE_CHECKING

from penstock.broker.request import Request, Response
from penstock.controller.reassignment import alter_partition_reassignments
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(
    broker: "Broker", request: Request, body: AlterPartitionReassignmentsRequest
) -> Response:
    broker.authorizer.require(request.session, AclOperation.ALTER)
    return await broker.controller.run(
        lambda image: alter_partition_reassignments(image, body, broker.election_rules())
    )
