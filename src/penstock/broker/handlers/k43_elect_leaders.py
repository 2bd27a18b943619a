"""ElectLeaders (43): versions 0 to 2: preferred and unclean elections on request (R5, R8)."""

from typing import TYPE_CHECKING

from penstock.broker.request import Request, Response
from penstock.controller.election import elect_leaders
from penstock.core.errors import KafkaError
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: ElectLeadersRequest) -> Response:
    try:
        broker.authorizer.require(request.session, AclOperation.ALTER)
        return await broker.controller.run(
            lambda image: elect_leaders(image, body, broker.election_rules())
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
