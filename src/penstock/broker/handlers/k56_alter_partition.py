"""AlterPartition (56), versions 0 to 3: a leader proposes new ISRs to the controller (R3)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.protocol.messages.alter_partition import AlterPartitionRequest
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    controller_api: ControllerApi


async def handle(context: Context, request: Request, body: AlterPartitionRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.CLUSTER_ACTION)
    return await context.controller_api.alter_partition(body)
