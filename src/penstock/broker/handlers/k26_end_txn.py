"""EndTxn (26): versions 0 to 5: a producer commits or aborts its transaction (P4)."""

from dataclasses import dataclass

from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    transactions: TransactionCoordinator


def handle(context: Context, request: Request, body: EndTxnRequest) -> HandlerResult:
    name = body.transactional_id
    if not context.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return context.transactions.send(request, body, name)
