"""GetTelemetrySubscriptions (71): version 0: which of its metrics a client shall push (KIP-714).

Always served, see `penstock.broker.client_telemetry`.
"""

from typing import TYPE_CHECKING

from penstock.broker.client_telemetry import COMPRESSION_TYPES, client_of
from penstock.broker.request import HandlerResult, Request
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: GetTelemetrySubscriptionsRequest
) -> HandlerResult:
    telemetry = broker.telemetry
    instance_id, instance = telemetry.subscribe(
        body.client_instance_id, client_of(request), broker.clock.monotonic_ms()
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=instance.push_interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )
