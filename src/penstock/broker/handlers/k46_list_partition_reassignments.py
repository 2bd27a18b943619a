"""ListPartitionReassignments (46), version 0: returns the reassignments in progress (R8)."""

from dataclasses import dataclass

from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.reassignment import list_partition_reassignments
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    image: ClusterImage
    authorizer: RequestAuthorizer


def handle(
    context: Context, request: Request, body: ListPartitionReassignmentsRequest
) -> HandlerResult:
    context.authorizer.require(request.session, AclOperation.DESCRIBE)
    return list_partition_reassignments(context.image, body)
