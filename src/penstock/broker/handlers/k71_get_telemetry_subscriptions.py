"""GetTelemetrySubscriptions (71), version 0: returns which metrics a client pushes (KIP-714).

Always served, see `penstock.broker.client_telemetry`.
"""

from dataclasses import dataclass

from penstock.broker.client_telemetry import COMPRESSION_TYPES, ClientTelemetry, client_properties
from penstock.broker.request import HandlerResult, Request
from penstock.core.clock import Clock
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@dataclass(frozen=True, slots=True)
class Context:
    clock: Clock
    telemetry: ClientTelemetry


def handle(
    context: Context, request: Request, body: GetTelemetrySubscriptionsRequest
) -> HandlerResult:
    telemetry = context.telemetry
    instance_id, instance = telemetry.subscribe(
        body.client_instance_id, client_properties(request), context.clock.monotonic_ms()
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
