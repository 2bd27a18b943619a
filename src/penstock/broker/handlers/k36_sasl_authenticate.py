"""SaslAuthenticate (36), versions 0 to 2: exchanges tokens of the chosen mechanism (X2, E3).

The error of a refused login is sent after `connection.failed.authentication.delay.ms`; then the
connection is closed.
"""

import asyncio
from dataclasses import dataclass

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.request import HandlerResult, Request, Response
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


@dataclass(frozen=True, slots=True)
class Context:
    config: BrokerConfig


def handle(context: Context, request: Request, body: SaslAuthenticateRequest) -> HandlerResult:
    authenticator = request.session.authenticator
    if authenticator is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="this listener has no SASL: set security.protocol in the client",
        )
    try:
        challenge = authenticator.step(body.auth_bytes)
    except KafkaError as error:
        return _delayed_error(context, request, error)
    return SaslAuthenticateResponse(
        auth_bytes=challenge, session_lifetime_ms=authenticator.lifetime_ms
    )


async def _delayed_error(context: Context, request: Request, error: KafkaError) -> Response:
    await asyncio.sleep(context.config.int("connection.failed.authentication.delay.ms") / 1000)
    request.session.end(f"login refused: {error.message}")
    return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
