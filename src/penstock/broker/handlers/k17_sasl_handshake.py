"""SaslHandshake (17): versions 0 and 1: the client chooses a mechanism (X2)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: SaslHandshakeRequest) -> HandlerResult:
    login = request.session.authenticator
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    offered = sorted(login.mechanisms)
    try:
        login.handshake(request.version, body.mechanism)
    except KafkaError as error:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=offered)
    return SaslHandshakeResponse(mechanisms=offered)
