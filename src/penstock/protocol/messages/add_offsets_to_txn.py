"""AddOffsetsToTxn (25): the offsets of a group become part of a transaction.

Versions 0 to 4, flexible from 3.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, request, response


class AddOffsetsToTxnRequest(Message):
    INFO = request(ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message):
    INFO = response(ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
