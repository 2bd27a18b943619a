"""PushTelemetry (72), version 0: passes a client's metrics to the receiver (KIP-714).

Metrics are decompressed on a thread, to at most ten times `telemetry.max.bytes`. They are not
parsed.
"""

import logging
from dataclasses import dataclass

from penstock.broker.client_telemetry import (
    ClientInstance,
    ClientTelemetry,
    Push,
    client_properties,
)
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.workers import Workers
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from penstock.records.compress import Compression, decompress
from penstock.records.errors import DecompressionLimitError

logger = logging.getLogger(__name__)

_MAX_RATIO = 10


@dataclass(frozen=True, slots=True)
class Context:
    clock: Clock
    workers: Workers
    telemetry: ClientTelemetry


def handle(context: Context, request: Request, body: PushTelemetryRequest) -> HandlerResult:
    instance = context.telemetry.check_push(
        body, client_properties(request), context.clock.monotonic_ms()
    )
    if not body.metrics:
        return PushTelemetryResponse()
    return _export(context, instance, body)


async def _export(
    context: Context, instance: ClientInstance, body: PushTelemetryRequest
) -> Response:
    telemetry = context.telemetry
    codec, metrics = Compression(body.compression_type), bytes(body.metrics)
    try:
        if codec is not Compression.NONE:
            limit = telemetry.max_bytes * _MAX_RATIO
            metrics = await context.workers.run(
                context.workers.compute, lambda: bytes(decompress(codec, body.metrics, limit))
            )
        telemetry.receiver.export(
            Push(
                body.client_instance_id,
                instance.client,
                metrics,
                context.clock.now_ms(),
                body.terminating,
            )
        )
    except DecompressionLimitError as error:
        return _error_response(instance, ErrorCode.TELEMETRY_TOO_LARGE, error.message)
    except KafkaError as error:
        return _error_response(instance, ErrorCode.INVALID_RECORD, error.message)
    except Exception as error:  # noqa: BLE001 - a receiver may raise anything
        return _error_response(instance, ErrorCode.INVALID_RECORD, repr(error))
    return PushTelemetryResponse()


def _error_response(
    instance: ClientInstance, code: ErrorCode, reason: str
) -> PushTelemetryResponse:
    instance.last_error = code
    logger.warning("metrics of client %s are lost: %s", instance.client["client_id"], reason)
    return PushTelemetryResponse(error_code=code)
