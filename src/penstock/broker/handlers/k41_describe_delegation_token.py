"""DescribeDelegationToken (41), versions 0 to 3: returns the tokens that the client may see (X2).

Owners, requesters and renewers see their tokens; others need DESCRIBE of the token, or
DESCRIBE_TOKENS of its owner. The response has the HMACs, so that those who see a token can log in
with it, as in Kafka.
"""

from dataclasses import dataclass
from typing import Final

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response, Session
from penstock.broker.security.delegation_tokens import DelegationTokens, require_own_login
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DelegationTokenRecord
from penstock.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.security.principal import Principal

_WITH_REQUESTER: Final = 3
"""The first version that tells who created a token."""
_NOBODY: Final = Principal("", "")


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer
    tokens: DelegationTokens


def handle(
    context: Context, request: Request, body: DescribeDelegationTokenRequest
) -> HandlerResult:
    require_own_login(request.session)
    context.tokens.require_enabled()
    return context.pacer.run(_steps(context, request, body))


def _steps(
    context: Context, request: Request, body: DescribeDelegationTokenRequest
) -> Steps[Response]:
    response = DescribeDelegationTokenResponse()
    selected: set[str] | None = None
    if body.owners is not None:
        selected = set()
        for owner in body.owners:
            yield
            selected.add(f"{owner.principal_type}:{owner.principal_name}")
        if not selected:
            return response
    for token in list(context.image.delegation_tokens.values()):
        yield
        users = {token.owner, token.requester, *token.renewers}
        if (selected is None or users & selected) and _may_see(
            context, request.session, token, users
        ):
            response.tokens.append(_describe(context, request, token))
    return response


def _may_see(
    context: Context, session: Session, token: DelegationTokenRecord, users: set[str]
) -> bool:
    allows = context.authorizer.would_allow
    return (
        str(session.principal) in users
        or allows(session, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or allows(session, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _describe(
    context: Context, request: Request, token: DelegationTokenRecord
) -> DescribedDelegationToken:
    has_requester = request.version >= _WITH_REQUESTER
    requester = Principal.parse(token.requester) if has_requester else _NOBODY
    return DescribedDelegationToken(
        *Principal.parse(token.owner),
        *requester,
        token.issue_ms,
        token.expiry_ms,
        token.max_ms,
        token.token_id,
        context.tokens.hmac(token.token_id),
        [DescribedDelegationTokenRenewer(*Principal.parse(renewer)) for renewer in token.renewers],
    )
