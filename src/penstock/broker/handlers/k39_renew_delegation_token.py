"""RenewDelegationToken (39), versions 0 to 2: a delegation token expires later (X2)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.delegation_tokens import DelegationTokens, require_own_login
from penstock.controller.delegation_tokens import renew_token
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Put
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    tokens: DelegationTokens
    clock: Clock


async def handle(context: Context, request: Request, body: RenewDelegationTokenRequest) -> Response:
    try:
        require_own_login(request.session)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error.code, -1)
    principal = str(request.session.principal)
    now_ms = context.clock.now_ms()

    def decide(image: ClusterImage) -> ControllerResult[int]:
        token = renew_token(
            context.tokens.find(image, body.hmac),
            principal,
            body.renew_period_ms,
            context.tokens.rules,
            now_ms,
        )
        return ControllerResult([Put(token)], token.expiry_ms)

    try:
        context.tokens.require_enabled()
        expiry_ms = await context.controller.write(decide, request)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error.code)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
