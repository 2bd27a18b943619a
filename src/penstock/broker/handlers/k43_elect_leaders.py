"""ElectLeaders (43), versions 0 to 2: elects preferred or unclean leaders (R5, R8)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.election import elect_leaders
from penstock.core.errors import KafkaError
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from penstock.security.acl import AclOperation

_FIRST_WITH_ERROR = 1


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: ElectLeadersRequest) -> Response:
    try:
        context.authorizer.require(request.session, AclOperation.ALTER)
        return await context.controller.run_election(
            lambda image, rules: elect_leaders(image, body, rules), request
        )
    except KafkaError as error:
        return ElectLeadersResponse(
            error_code=error.code if request.version >= _FIRST_WITH_ERROR else 0,
            replica_election_results=_error_results(body, error),
        )


def _error_results(body: ElectLeadersRequest, error: KafkaError) -> list[ReplicaElectionResult]:
    """Returns the error for every partition: version 0 has no error of the whole request."""
    return [
        ReplicaElectionResult(
            topic.topic,
            [
                ElectLeadersPartitionResult(index, error.code, error.message)
                for index in topic.partitions
            ],
        )
        for topic in body.topic_partitions or []
    ]
