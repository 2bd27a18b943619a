"""InitProducerId (22): versions 0 to 5: ids for idempotent and transactional producers (P3, P4)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request, Response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: InitProducerIdRequest) -> HandlerResult:
    name = body.transactional_id
    if name is None:
        if not broker.authorizer.allows_any_write(request.session):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not broker.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (body.producer_id == -1) != (body.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if name is not None:
        return broker.transactions.send(request, body, name)
    producer_id = broker.producer_ids.take()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id)
    return _from_next_block(broker)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


async def _from_next_block(broker: "Broker") -> Response:
    return InitProducerIdResponse(producer_id=await broker.producer_ids.wait())
