"""ListTransactions (66): the transactions that a broker coordinates.

Versions 0 to 2, flexible.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class ListTransactionsRequest(Message):
    INFO = request(ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")

    state_filters: list[str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, wire("1+")] = -1
    transactional_id_pattern: Annotated[str | None, wire("2+")] = None


class ListTransactionsTransactionState(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""


class ListTransactionsResponse(Message):
    INFO = response(ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[ListTransactionsTransactionState] = []
