"""DescribeTransactions (65): version 0: the state of transactional ids (P4)."""

import asyncio
from dataclasses import dataclass

from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.pacer import Pacer, chunks
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer
    transactions: TransactionCoordinator


async def handle(context: Context, request: Request, body: DescribeTransactionsRequest) -> Response:
    states: list[DescribeTransactionsTransactionState] = []
    async for names in context.pacer.each(chunks(body.transactional_ids)):
        states += await asyncio.gather(*(_describe(context, request, name) for name in names))
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(
    context: Context, request: Request, name: str
) -> DescribeTransactionsTransactionState:
    if not context.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return DescribeTransactionsTransactionState(code, name)
    response = await context.transactions.send(request, DescribeTransactionsRequest([name]), name)
    assert isinstance(response, DescribeTransactionsResponse)
    (state,) = response.transaction_states
    state.topics = [
        topic
        for topic in state.topics
        if context.authorizer.would_allow(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
    ]
    return state
