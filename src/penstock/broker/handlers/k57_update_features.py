"""UpdateFeatures (57), versions 0 to 2: upgrades and downgrades feature levels of the cluster."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.features import update_features
from penstock.protocol.messages.update_features import UpdateFeaturesRequest
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: UpdateFeaturesRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.ALTER)
    return await context.controller.run(lambda image: update_features(image, body), request)
