"""RenewDelegationToken (39): a delegation token stays valid for longer.

Versions 0 to 2, flexible from 2; Kafka 4 starts at 1.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, request, response


class RenewDelegationTokenRequest(Message):
    INFO = request(ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2", flexible="2+")

    hmac: bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message):
    INFO = response(ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2", flexible="2+")

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
