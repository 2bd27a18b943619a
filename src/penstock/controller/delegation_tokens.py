"""Decisions about delegation tokens (KIP-48, KIP-373, X2): who may create, renew and end them.

Principals are written `User:ann`. A function that refuses raises KafkaError with Kafka's code; the
order of its checks is that of Kafka's KRaft controller.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    DelegationTokenRecord,
    Delete,
    Put,
)
from penstock.core.errors import ErrorCode, KafkaError

MAX_PRINCIPAL_BYTES: Final = 16 * 1024
"""The owner, the requester and the renewers of a token, in all: one node of the store has them."""
MAX_RENEWERS: Final = 1000
MAX_REMOVALS: Final = 500
"""The expired tokens that one commit removes."""
_MAX_LONG: Final = 2**63 - 1


class TokenRules(NamedTuple):
    """The settings `delegation.token.*` of the cluster."""

    max_lifetime_ms: int
    expiry_time_ms: int
    max_tokens_per_owner: int


class NewToken(NamedTuple):
    """A token that is requested. `token_id` must be random."""

    token_id: str
    owner: str
    requester: str
    renewers: Sequence[str]
    max_lifetime_ms: int
    """0 or less for the longest lifetime that the cluster allows."""


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_ms < now_ms or token.expiry_ms < now_ms


def create_token(
    image: ClusterImage, new: NewToken, rules: TokenRules, now_ms: int
) -> DelegationTokenRecord:
    """Returns the token to store.

    Raises POLICY_VIOLATION if its owner has too many, or its principals are too long.
    """
    _check_size(new)
    _check_count(image, new.owner, rules, now_ms)
    lifetime_ms = rules.max_lifetime_ms
    if new.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, new.max_lifetime_ms)
    max_ms = _sum(now_ms, lifetime_ms)
    return DelegationTokenRecord(
        new.token_id,
        new.owner,
        new.requester,
        tuple(new.renewers),
        now_ms,
        max_ms,
        min(max_ms, _sum(now_ms, rules.expiry_time_ms)),
    )


def renew_token(
    token: DelegationTokenRecord | None,
    principal: str,
    period_ms: int,
    rules: TokenRules,
    now_ms: int,
) -> DelegationTokenRecord:
    """Returns the token with its new time of expiry, never after the end of its lifetime.

    Without a period above 0, or with one longer than the cluster allows, it is the cluster's.
    """
    token = _require(token)
    if is_expired(token, now_ms):
        raise _expired(token)
    _require_renewer(token, principal)
    lifetime_ms = rules.expiry_time_ms
    if period_ms > 0:
        lifetime_ms = min(lifetime_ms, period_ms)
    return _expiring(token, now_ms, lifetime_ms)


def expire_token(
    token: DelegationTokenRecord | None, principal: str, period_ms: int, now_ms: int
) -> tuple[Change, int]:
    """Returns the change and the new time of expiry; a negative period removes the token."""
    token = _require(token)
    _require_renewer(token, principal)
    if period_ms < 0:
        return Delete(token.key), now_ms
    if is_expired(token, now_ms):
        raise _expired(token)
    token = _expiring(token, now_ms, period_ms)
    return Put(token), token.expiry_ms


def expired_tokens(image: ClusterImage, now_ms: int) -> list[DelegationTokenRecord]:
    """Returns the next tokens that are to be removed: at most `MAX_REMOVALS`."""
    expired = [token for token in image.delegation_tokens.values() if is_expired(token, now_ms)]
    return expired[:MAX_REMOVALS]


def _expiring(token: DelegationTokenRecord, now_ms: int, period_ms: int) -> DelegationTokenRecord:
    return replace(token, expiry_ms=min(token.max_ms, _sum(now_ms, period_ms)))


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _MAX_LONG)


def _require(token: DelegationTokenRecord | None) -> DelegationTokenRecord:
    if token is None:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no delegation token with this HMAC"
        )
    return token


def _require_renewer(token: DelegationTokenRecord, principal: str) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            f"{principal} is neither the owner nor a renewer of token {token.token_id}",
        )


def _expired(token: DelegationTokenRecord) -> KafkaError:
    return KafkaError(
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        f"token {token.token_id} has expired",
        remedy="create another",
    )


def _check_size(new: NewToken) -> None:
    names = (new.owner, new.requester, *new.renewers)
    if sum(len(name.encode(errors="surrogatepass")) for name in names) > MAX_PRINCIPAL_BYTES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the owner and the renewers of a token have more than {MAX_PRINCIPAL_BYTES} bytes",
            remedy="name fewer renewers",
        )


def _check_count(image: ClusterImage, owner: str, rules: TokenRules, now_ms: int) -> None:
    tokens = [
        token
        for token in image.delegation_tokens.values()
        if token.owner == owner and not is_expired(token, now_ms)
    ]
    if len(tokens) >= rules.max_tokens_per_owner:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{owner} has {len(tokens)} delegation tokens",
            remedy="expire some, or raise delegation.token.max.tokens.per.owner",
        )
