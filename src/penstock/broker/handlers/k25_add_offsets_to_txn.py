"""AddOffsetsToTxn (25): versions 0 to 4: adds a group's offsets to a transaction (P4)."""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.required_topic import require_topic
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    authorizer: RequestAuthorizer
    groups: GroupCoordinator
    transactions: TransactionCoordinator


async def handle(context: Context, request: Request, body: AddOffsetsToTxnRequest) -> Response:
    name = body.transactional_id
    if not context.authorizer.allows(
        request.session, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return AddOffsetsToTxnResponse(error_code=code)
    if not context.authorizer.allows(
        request.session, AclOperation.READ, ResourceType.GROUP, body.group_id
    ):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        # The transaction contains a partition of the groups' topic, which must exist to be ended.
        await require_topic(context.groups)
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return await context.transactions.send(request, body, name)
