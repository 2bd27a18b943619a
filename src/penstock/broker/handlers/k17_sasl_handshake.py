"""SaslHandshake (17), versions 0 and 1: the client chooses a SASL mechanism (X2)."""

from dataclasses import dataclass

from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@dataclass(frozen=True, slots=True)
class Context:
    """Only the session is needed."""


def handle(context: Context, request: Request, body: SaslHandshakeRequest) -> HandlerResult:
    authenticator = request.session.authenticator
    if authenticator is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = sorted(authenticator.mechanisms)
    try:
        authenticator.handshake(request.version, body.mechanism)
    except KafkaError as error:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=mechanisms)
    return SaslHandshakeResponse(mechanisms=mechanisms)
