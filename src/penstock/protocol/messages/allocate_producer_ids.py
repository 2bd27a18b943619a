"""AllocateProducerIds (67): a broker gets a block of producer ids from the controller.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, request, response


class AllocateProducerIdsRequest(Message):
    INFO = request(ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message):
    INFO = response(ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
