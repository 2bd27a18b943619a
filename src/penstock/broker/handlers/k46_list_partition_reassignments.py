"""ListPartitionReassignments (46), version 0: returns the reassignments in progress (R8)."""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.reassignment import list_partition_reassignments
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer


def handle(
    context: Context, request: Request, body: ListPartitionReassignmentsRequest
) -> HandlerResult:
    context.authorizer.require(request.session, AclOperation.DESCRIBE)
    return context.pacer.run(_steps(context, body))


def _steps(context: Context, body: ListPartitionReassignmentsRequest) -> Steps[Response]:
    requested = body.topics
    if requested is None:
        requested = [
            ListPartitionReassignmentsTopics(name, list(record.assignments))
            for name, record in list(context.image.topics.items())
        ]
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic in requested:
        yield
        part = ListPartitionReassignmentsRequest(body.timeout_ms, [topic])
        response.topics += list_partition_reassignments(context.image, part).topics
    return response
