"""GetTelemetrySubscriptions (71): which client metrics the broker wants pushed.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int8, Int16, Int32, Message, request, response


class GetTelemetrySubscriptionsRequest(Message):
    INFO = request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+")

    client_instance_id: UUID = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message):
    INFO = response(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: UUID = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []
