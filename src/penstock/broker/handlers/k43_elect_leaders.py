"""ElectLeaders (43): versions 0 to 2: preferred and unclean elections on request (R5, R8)."""

from typing import TYPE_CHECKING

from penstock.broker.request import Answer, Request
from penstock.controller.election import elect_leaders
from penstock.core.errors import KafkaError
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: ElectLeadersRequest) -> Answer:
    try:
        broker.access.require(request.session, AclOperation.ALTER)
        return await broker.controlling.run(
            lambda image: elect_leaders(image, body, broker.election_rules())
        )
    except KafkaError as error:
        return ElectLeadersResponse(error_code=error.code)
