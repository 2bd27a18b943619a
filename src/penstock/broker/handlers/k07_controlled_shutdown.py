"""ControlledShutdown (7), versions 0 to 3: moves the leaderships of a stopping broker (R8)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    controller_api: ControllerApi


async def handle(context: Context, request: Request, body: ControlledShutdownRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.CLUSTER_ACTION)
    return await context.controller_api.controlled_shutdown(body)
