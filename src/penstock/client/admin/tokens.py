"""Admin calls for delegation tokens (KIP-48), which need a login other than with a token.

Principals are written `User:ann`. HMACs are passwords, in bytes or in base64.
"""

import base64
import binascii
from collections.abc import Iterable

from penstock.client.admin.api_driver import (
    AdminApiDriver,
    AdminCall,
    NodeProvider,
    check_collection,
)
from penstock.client.admin.model_security import DelegationToken
from penstock.client.errors import ConfigError
from penstock.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.security.principal import Principal

_OWNER_VERSION = (3, "3.3")
"""The version with owners, and the first Kafka that has it."""


async def create_delegation_token(
    admin: AdminApiDriver,
    *,
    owner: str | None = None,
    renewers: Iterable[str] = (),
    max_lifetime_ms: int = -1,
    timeout_ms: int | None = None,
) -> DelegationToken:
    """Creates a token for this user, or for an `owner` whose tokens this user may create.

    The owner and the renewers may renew it, up to its maximum lifetime: by default, and at most,
    delegation.token.max.lifetime.ms of the brokers.
    """
    call = AdminCall(admin, "create_delegation_token", timeout_ms)
    check_collection(call.name, renewers)
    names = [Principal.parse(renewer) for renewer in renewers]
    kind, name = ("", "") if owner is None else Principal.parse(owner)
    response = await call.request_until_done(
        NodeProvider.ANY,
        CreateDelegationTokenRequest(
            kind, name, [CreatableRenewers(*renewer) for renewer in names], max_lifetime_ms
        ),
        CreateDelegationTokenResponse,
        required=None if owner is None else _OWNER_VERSION,
    )
    actual_owner = f"{response.principal_type}:{response.principal_name}"
    return DelegationToken(
        response.token_id,
        response.hmac,
        actual_owner,
        _requester(response, actual_owner),
        tuple(map(str, names)),
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
    )


async def renew_delegation_token(
    admin: AdminApiDriver,
    hmac: bytes | str,
    *,
    renew_period_ms: int = -1,
    timeout_ms: int | None = None,
) -> int:
    """Lets a token expire later; returns when, in milliseconds since the epoch.

    By default, and at most, it is valid for delegation.token.expiry.time.ms of the brokers from
    now on, but never beyond its maximum lifetime.
    """
    call = AdminCall(admin, "renew_delegation_token", timeout_ms)
    response = await call.request_until_done(
        NodeProvider.ANY,
        RenewDelegationTokenRequest(_hmac(call.name, hmac), renew_period_ms),
        RenewDelegationTokenResponse,
    )
    return response.expiry_timestamp_ms


async def expire_delegation_token(
    admin: AdminApiDriver,
    hmac: bytes | str,
    *,
    expiry_period_ms: int = -1,
    timeout_ms: int | None = None,
) -> int:
    """Ends a token now, or after a period; returns when, in milliseconds since the epoch.

    Connections that have logged in with it stay until their login expires.
    """
    call = AdminCall(admin, "expire_delegation_token", timeout_ms)
    response = await call.request_until_done(
        NodeProvider.ANY,
        ExpireDelegationTokenRequest(_hmac(call.name, hmac), expiry_period_ms),
        ExpireDelegationTokenResponse,
    )
    return response.expiry_timestamp_ms


async def describe_delegation_token(
    admin: AdminApiDriver, owners: Iterable[str] | None = None, *, timeout_ms: int | None = None
) -> list[DelegationToken]:
    """Returns the tokens that this user may see, sorted; only those of `owners` if given.

    An owner is also who has created the token, and who may renew it.
    """
    call = AdminCall(admin, "describe_delegation_token", timeout_ms)
    selected = None
    if owners is not None:
        check_collection(call.name, owners)
        selected = [DescribeDelegationTokenOwner(*Principal.parse(owner)) for owner in owners]
    response = await call.request_until_done(
        NodeProvider.ANY,
        DescribeDelegationTokenRequest(selected),
        DescribeDelegationTokenResponse,
    )
    return sorted(map(_token, response.tokens), key=lambda token: (token.owner, token.token_id))


def _token(described: DescribedDelegationToken) -> DelegationToken:
    owner = f"{described.principal_type}:{described.principal_name}"
    return DelegationToken(
        described.token_id,
        described.hmac,
        owner,
        _requester(described, owner),
        tuple(f"{each.principal_type}:{each.principal_name}" for each in described.renewers),
        described.issue_timestamp,
        described.expiry_timestamp,
        described.max_timestamp,
    )


def _requester(
    response: CreateDelegationTokenResponse | DescribedDelegationToken, owner: str
) -> str:
    """Returns who created a token. Old versions do not tell: it is the owner then."""
    if not response.token_requester_principal_type:
        return owner
    return f"{response.token_requester_principal_type}:{response.token_requester_principal_name}"


def _hmac(call: str, hmac: bytes | str) -> bytes:
    if isinstance(hmac, bytes):
        return hmac
    try:
        return base64.b64decode(hmac, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("the HMAC is not base64", operation=call) from None
