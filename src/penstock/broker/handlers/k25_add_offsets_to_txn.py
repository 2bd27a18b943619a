"""AddOffsetsToTxn (25): versions 0 to 4: a group's offsets become part of a transaction (P4)."""

from typing import TYPE_CHECKING

from penstock.broker.request import Request, Response
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: AddOffsetsToTxnRequest) -> Response:
    name = body.transactional_id
    if not broker.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return AddOffsetsToTxnResponse(error_code=code)
    if not broker.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        # The transaction names a partition of the groups' topic: it must be there to be ended.
        await broker.groups.ensure_topic()
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return await broker.transactions.send(request, body, name)
