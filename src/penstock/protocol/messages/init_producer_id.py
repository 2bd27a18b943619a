"""InitProducerId (22): a producer gets its id and epoch, and its predecessors are fenced.

Versions 0 to 6, flexible from 2; 6 is not stable yet.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, request, response, wire


class InitProducerIdRequest(Message):
    INFO = request(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+", unstable="6")

    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, wire("3+")] = -1
    producer_epoch: Annotated[Int16, wire("3+")] = -1
    enable_2pc: Annotated[bool, wire("6+")] = False
    keep_prepared_txn: Annotated[bool, wire("6+")] = False


class InitProducerIdResponse(Message):
    INFO = response(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+", unstable="6")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, wire("6+")] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, wire("6+")] = -1
