"""SaslHandshake (17): versions 0 and 1: the client chooses a mechanism (X2)."""

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
    login = request.session.authenticator
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    offered = sorted(login.mechanisms)
    try:
        login.handshake(request.version, body.mechanism)
    except KafkaError as error:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=offered)
    return SaslHandshakeResponse(mechanisms=offered)
