"""UpdateMetadata (6), versions 0 to 8: the controller's metadata of the cluster (R6)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_requests import ControllerRequests
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import KafkaError
from penstock.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    controller_requests: ControllerRequests
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: UpdateMetadataRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.CLUSTER_ACTION)
    try:
        await context.controller_requests.update_metadata(body, request.session)
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    return UpdateMetadataResponse()
