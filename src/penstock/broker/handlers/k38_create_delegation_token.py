"""CreateDelegationToken (38), versions 0 to 3: a token with which others log in as its owner (X2).

Everybody may create tokens for themselves; those for others need CREATE_TOKENS (KIP-373).
"""

import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Final

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.delegation_tokens import DelegationTokens, require_own_login
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.delegation_tokens import MAX_RENEWERS, NewToken, create_token
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DelegationTokenRecord, Put
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.security.principal import ANONYMOUS, Principal

_WITH_REQUESTER: Final = 3
"""The first version that tells who created a token."""


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer
    tokens: DelegationTokens
    clock: Clock


async def handle(
    context: Context, request: Request, body: CreateDelegationTokenRequest
) -> Response:
    requester = request.session.principal
    owner = requester
    if body.owner_principal_name:
        owner = Principal(body.owner_principal_type or "", body.owner_principal_name)
    response = CreateDelegationTokenResponse(0, *owner)
    if request.version >= _WITH_REQUESTER:
        response.token_requester_principal_type, response.token_requester_principal_name = requester
    try:
        _authorize(context, request, body, owner)
    except KafkaError as error:
        response.error_code = error.code
        response.issue_timestamp_ms = -1
        response.expiry_timestamp_ms = -1
        response.max_timestamp_ms = -1
        return response
    new = NewToken(
        _random_id(),
        str(owner),
        str(requester),
        [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in body.renewers],
        body.max_lifetime_ms,
    )
    now_ms = context.clock.now_ms()

    def decide(image: ClusterImage) -> ControllerResult[DelegationTokenRecord]:
        token = create_token(image, new, context.tokens.rules, now_ms)
        return ControllerResult([Put(token)], token)

    try:
        context.tokens.require_enabled()
        token = await context.controller.write(decide, request)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = token.issue_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = context.tokens.hmac(token.token_id)
    return response


def _authorize(
    context: Context, request: Request, body: CreateDelegationTokenRequest, owner: Principal
) -> None:
    require_own_login(request.session)
    if owner != request.session.principal and not context.authorizer.allows(
        request.session, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            f"{request.session.principal} may not create tokens for {owner}",
        )
    if len(body.renewers) > MAX_RENEWERS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"a token has at most {MAX_RENEWERS} renewers")
    kinds = {owner.kind, *(renewer.principal_type for renewer in body.renewers)}
    if kinds != {ANONYMOUS.kind}:
        # An owner of another type too: a login with the token would be that of a user.
        raise KafkaError(
            ErrorCode.INVALID_PRINCIPAL_TYPE, "owner and renewers must be of type User"
        )


def _random_id() -> str:
    """Returns a UUID as Kafka writes it: never with a dash first, which looks like an option."""
    while True:
        token_id = urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        if not token_id.startswith("-"):
            return token_id
