"""UnregisterBroker (64): a broker that is gone is taken out of the KRaft cluster.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, request, response


class UnregisterBrokerRequest(Message):
    INFO = request(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")

    broker_id: Int32 = 0


class UnregisterBrokerResponse(Message):
    INFO = response(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
