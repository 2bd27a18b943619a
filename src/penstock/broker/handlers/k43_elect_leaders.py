"""ElectLeaders (43): versions 0 to 2: preferred and unclean elections on request (R5, R8)."""

from dataclasses import dataclass

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.topic_rules import election_rules
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


@dataclass(frozen=True, slots=True)
class Context:
    config: BrokerConfig
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: ElectLeadersRequest) -> Response:
    try:
        context.authorizer.require(request.session, AclOperation.ALTER)
        return await context.controller.run(
            lambda image: elect_leaders(image, body, election_rules(context.config, image))
        )
    except KafkaError as error:
        return ElectLeadersResponse(
            error_code=error.code, replica_election_results=_refused(body, error)
        )


def _refused(body: ElectLeadersRequest, error: KafkaError) -> list[ReplicaElectionResult]:
    """The error of the whole for every partition: version 0 has no other place for it."""
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
