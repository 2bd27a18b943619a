"""AllocateProducerIds (67), version 0: the controller allocates a block of producer ids (P3)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    controller_api: ControllerApi


async def handle(context: Context, request: Request, body: AllocateProducerIdsRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.CLUSTER_ACTION)
    return await context.controller_api.allocate_producer_ids(body)
