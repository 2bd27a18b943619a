"""ListTransactions (66): versions 0 to 2: the transactions that this broker coordinates (P4)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from penstock.broker.coordinator.topic_patterns import matcher
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.workers import Workers
from penstock.coordinator.txn.state import STATES_BY_NAME
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer
    workers: Workers
    transactions: TransactionCoordinator


async def handle(context: Context, request: Request, body: ListTransactionsRequest) -> Response:
    pattern = body.transactional_id_pattern
    matches = matcher(pattern) if pattern else None
    # Unknown state filters are reported even if this broker coordinates nothing.
    names = dict.fromkeys(body.state_filters)
    known_states = [name async for name in context.pacer.each(names) if name in STATES_BY_NAME]
    listed = ListTransactionsResponse(
        unknown_state_filters=[
            name async for name in context.pacer.each(names) if name not in STATES_BY_NAME
        ]
    )
    if names and not known_states:
        return listed
    body = replace(body, state_filters=known_states)
    for response in await context.transactions.send_to_all(request, body):
        assert isinstance(response, ListTransactionsResponse)
        if response.error_code:
            return ListTransactionsResponse(error_code=response.error_code)
        listed.transaction_states.extend(response.transaction_states)
    states = listed.transaction_states
    if matches is not None:
        work = partial(_matching, states, matches)
        states = await context.workers.run(context.workers.search, work)
    listed.transaction_states = [
        state
        async for state in context.pacer.each(states)
        if context.authorizer.would_allow(
            request.session,
            AclOperation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            state.transactional_id,
        )
    ]
    return listed


def _matching(
    states: list[ListTransactionsTransactionState], matches: Callable[[str], bool]
) -> list[ListTransactionsTransactionState]:
    return [state for state in states if matches(state.transactional_id)]
