"""ListPartitionReassignments (46): version 0: what is being moved between brokers (R8)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.controller.reassignment import list_partition_reassignments
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: ListPartitionReassignmentsRequest
) -> HandlerResult:
    broker.authorizer.require(request.session, AclOperation.DESCRIBE)
    return list_partition_reassignments(broker.image, body)
