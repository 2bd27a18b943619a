"""DescribeTransactions (65): version 0: where transactional ids stand (P4)."""

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.request import Request, Response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: DescribeTransactionsRequest) -> Response:
    states = await asyncio.gather(
        *(_describe(broker, request, name) for name in body.transactional_ids)
    )
    return DescribeTransactionsResponse(transaction_states=list(states))


async def _describe(
    broker: "Broker", request: Request, name: str
) -> DescribeTransactionsTransactionState:
    if not broker.authorizer.allows(
        request.session, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return DescribeTransactionsTransactionState(code, name)
    answer = await broker.transactions.send(request, DescribeTransactionsRequest([name]), name)
    assert isinstance(answer, DescribeTransactionsResponse)
    (state,) = answer.transaction_states
    state.topics = [
        topic
        for topic in state.topics
        if broker.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
    ]
    return state
