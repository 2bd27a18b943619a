"""SaslAuthenticate (36), versions 0 to 2: exchanges tokens of the chosen mechanism (X2, E3).

The error of a refused login is sent after `connection.failed.authentication.delay.ms`; then the
connection is closed.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.sasl_authenticator import SaslServerAuthenticator
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
    waiting = authenticator.prepare(body.auth_bytes)
    if waiting is not None:
        return _step_later(waiting, context, request, authenticator, body)
    return _step(context, request, authenticator, body)


async def _step_later(
    waiting: Awaitable[None],
    context: Context,
    request: Request,
    authenticator: SaslServerAuthenticator,
    body: SaslAuthenticateRequest,
) -> Response:
    await waiting
    result = _step(context, request, authenticator, body)
    return await result if isinstance(result, Coroutine) else result


def _step(
    context: Context,
    request: Request,
    authenticator: SaslServerAuthenticator,
    body: SaslAuthenticateRequest,
) -> Response | Coroutine[Any, Any, Response]:
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
