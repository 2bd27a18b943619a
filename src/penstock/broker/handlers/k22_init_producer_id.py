"""InitProducerId (22): versions 0 to 5: ids for idempotent and transactional producers (P3, P4)."""

from dataclasses import dataclass

from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    producer_ids: ProducerIdManager
    transactions: TransactionCoordinator


def handle(context: Context, request: Request, body: InitProducerIdRequest) -> HandlerResult:
    name = body.transactional_id
    if name is None:
        if not context.authorizer.allows_any_write(request.session):
            return _error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not context.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (body.producer_id == -1) != (body.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    if name is not None:
        return context.transactions.send(request, body, name)
    producer_id = context.producer_ids.take()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id)
    return _from_next_block(context)


def _error(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


async def _from_next_block(context: Context) -> Response:
    return InitProducerIdResponse(producer_id=await context.producer_ids.wait())
