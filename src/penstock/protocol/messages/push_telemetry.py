"""PushTelemetry (72): a client pushes its metrics.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int8, Int16, Int32, Message, request, response


class PushTelemetryRequest(Message):
    INFO = request(ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")

    client_instance_id: UUID = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: bool = False
    compression_type: Int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(Message):
    INFO = response(ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
