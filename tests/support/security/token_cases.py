"""The matrix's requests about delegation tokens."""

from typing import Final

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.security.case import Case
from tests.support.security.principals import SUPER_USER
from tests.support.security.world import World, restore_tokens

_FIRST_WITH_OWNERS: Final = 3
_LIFETIME_MS: Final = 3_600_000


def _create(version: int, owner: str | None = None) -> Message:
    # The super user is a renewer, so that it can remove the token afterwards.
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers("User", SUPER_USER.user)], max_lifetime_ms=_LIFETIME_MS
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    return request


def _describe(world: World, version: int) -> Message:
    return DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", SUPER_USER.user)])


TOKEN_CASES: Final = (
    Case(
        "for oneself",
        ApiKey.CREATE_DELEGATION_TOKEN,
        lambda world, version: _create(version),
        restore=restore_tokens,
    ),
    Case(
        "for another user",
        ApiKey.CREATE_DELEGATION_TOKEN,
        lambda world, version: _create(version, "nobody"),
        first=_FIRST_WITH_OWNERS,
        restore=restore_tokens,
    ),
    Case(
        "of another user",
        ApiKey.RENEW_DELEGATION_TOKEN,
        lambda world, version: RenewDelegationTokenRequest(world.token, _LIFETIME_MS),
    ),
    Case(
        "that does not exist",
        ApiKey.RENEW_DELEGATION_TOKEN,
        lambda world, version: RenewDelegationTokenRequest(b"unknown", _LIFETIME_MS),
    ),
    Case(
        "of another user",
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        lambda world, version: ExpireDelegationTokenRequest(world.token, _LIFETIME_MS),
    ),
    Case(
        "that does not exist",
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        lambda world, version: ExpireDelegationTokenRequest(b"unknown", _LIFETIME_MS),
    ),
    Case(
        "of all users",
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        lambda world, version: DescribeDelegationTokenRequest(None),
    ),
    Case("of one user", ApiKey.DESCRIBE_DELEGATION_TOKEN, _describe),
)
