"""EndTxn (26): versions 0 to 5: a producer commits or aborts its transaction (P4)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: EndTxnRequest) -> HandlerResult:
    name = body.transactional_id
    if not broker.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return broker.transactions.send(request, body, name)
