"""AlterPartition (56), versions 0 to 3: a leader proposes new ISRs to the controller (R3)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_partition import AlterPartitionRequest
from penstock.security.acl import AclOperation

_FIRST_WITH_INELIGIBLE_REPLICA = 2


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    controller_api: ControllerApi


async def handle(context: Context, request: Request, body: AlterPartitionRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.CLUSTER_ACTION)
    response = await context.controller_api.alter_partition(body)
    if request.version < _FIRST_WITH_INELIGIBLE_REPLICA:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.INELIGIBLE_REPLICA:
                    partition.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    return response
