"""EndTxn (26): a producer commits or aborts its transaction.

Versions 0 to 5, flexible from 3.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, request, response, wire


class EndTxnRequest(Message):
    INFO = request(ApiKey.END_TXN, versions="0-5", flexible="3+")

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


class EndTxnResponse(Message):
    INFO = response(ApiKey.END_TXN, versions="0-5", flexible="3+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, wire("5+", ignorable=True)] = -1
    producer_epoch: Annotated[Int16, wire("5+", ignorable=True)] = -1
