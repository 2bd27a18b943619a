"""UpdateFeatures (57): versions 0 to 2: the cluster's feature levels go up or down."""

from typing import TYPE_CHECKING

from penstock.broker.request import Request, Response
from penstock.controller.features import update_features
from penstock.protocol.messages.update_features import UpdateFeaturesRequest
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: UpdateFeaturesRequest) -> Response:
    broker.authorizer.require(request.session, AclOperation.ALTER)
    return await broker.controller.run(lambda image: update_features(image, body))
