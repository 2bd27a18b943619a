"""ExpireDelegationToken (40), versions 0 to 2: a delegation token ends sooner, or now (X2)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.delegation_tokens import DelegationTokens, require_own_login
from penstock.controller.delegation_tokens import expire_token
from penstock.controller.image import ClusterImage
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    tokens: DelegationTokens
    clock: Clock


async def handle(
    context: Context, request: Request, body: ExpireDelegationTokenRequest
) -> Response:
    try:
        require_own_login(request.session)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error.code, -1)
    principal = str(request.session.principal)
    now_ms = context.clock.now_ms()

    def decide(image: ClusterImage) -> ControllerResult[int]:
        change, expiry_ms = expire_token(
            context.tokens.find(image, body.hmac), principal, body.expiry_time_period_ms, now_ms
        )
        return ControllerResult([change], expiry_ms)

    try:
        context.tokens.require_enabled()
        expiry_ms = await context.controller.write(decide, request)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error.code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
