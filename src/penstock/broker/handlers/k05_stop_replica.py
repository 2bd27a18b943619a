"""StopReplica (5), versions 0 to 4: the controller stops replicas, and deletes their logs (R8)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_requests import ControllerRequests
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import KafkaError
from penstock.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    controller_requests: ControllerRequests
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: StopReplicaRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.CLUSTER_ACTION)
    try:
        result = await context.controller_requests.stop_replica(body, request.session)
    except KafkaError as error:
        return StopReplicaResponse(error_code=error.code)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(key.topic, key.partition, code)
            for key, code in result.stops.items()
        ]
    )
