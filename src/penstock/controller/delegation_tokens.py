"""Decisions about delegation tokens (KIP-48, KIP-373, X2): who may create, renew and end them.

Principals are written `User:ann`. A function that refuses raises KafkaError with Kafka's code.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, DelegationTokenRecord, Delete, Put
from penstock.core.errors import ErrorCode, KafkaError

MAX_PRINCIPAL_BYTES: Final = 16 * 1024
"""The owner and the renewers of a token, which are in one node of the store, in all."""


class TokenRules(NamedTuple):
    """The settings `delegation.token.*` of the cluster."""

    max_lifetime_ms: int
    expiry_time_ms: int
    max_tokens: int
    max_tokens_per_owner: int


class NewToken(NamedTuple):
    """A token that is requested. `token_id` must be random and new."""

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
) -> tuple[list[Change], DelegationTokenRecord]:
    """Returns the changes and the new token.

    Raises POLICY_VIOLATION if there are too many tokens, or its principals are too long.
    """
    _check_size(new)
    _check_count(image, new.owner, rules, now_ms)
    lifetime_ms = rules.max_lifetime_ms
    if new.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, new.max_lifetime_ms)
    max_ms = now_ms + lifetime_ms
    token = DelegationTokenRecord(
        new.token_id,
        new.owner,
        new.requester,
        tuple(new.renewers),
        now_ms,
        max_ms,
        min(max_ms, now_ms + rules.expiry_time_ms),
    )
    return [Put(token)], token


def renew_token(
    token: DelegationTokenRecord | None,
    principal: str,
    period_ms: int,
    rules: TokenRules,
    now_ms: int,
) -> tuple[list[Change], int]:
    """Returns the changes and the new time of expiry, never after the end of its lifetime.

    Without a period above 0, or with one longer than the cluster allows, it is the cluster's.
    """
    token = _require(token)
    if is_expired(token, now_ms):
        raise _expired()
    _require_renewer(token, principal)
    lifetime_ms = rules.expiry_time_ms
    if period_ms > 0:
        lifetime_ms = min(lifetime_ms, period_ms)
    return _expiring(token, now_ms + lifetime_ms)


def expire_token(
    token: DelegationTokenRecord | None, principal: str, period_ms: int, now_ms: int
) -> tuple[list[Change], int]:
    """Returns the changes and the new time of expiry; a negative period removes the token."""
    token = _require(token)
    _require_renewer(token, principal)
    if period_ms < 0:
        return [Delete(token.key)], now_ms
    if is_expired(token, now_ms):
        raise _expired()
    return _expiring(token, now_ms + period_ms)


def remove_expired_tokens(image: ClusterImage, now_ms: int) -> list[Change]:
    return [
        Delete(token.key) for token in image.delegation_tokens.values() if is_expired(token, now_ms)
    ]


def may_describe(
    token: DelegationTokenRecord,
    principal: str,
    owners: frozenset[str] | None,
    is_allowed: Callable[[DelegationTokenRecord], bool],
) -> bool:
    """Returns whether a principal may see a token, and has asked for it.

    `owners` are the owners or renewers whose tokens are asked for; None for all. `is_allowed`
    decides about the tokens of others.
    """
    users = {token.owner, *token.renewers}
    if owners is not None and not users & owners:
        return False
    return principal in users or is_allowed(token)


def _check_size(new: NewToken) -> None:
    names = (new.owner, new.requester, *new.renewers)
    if sum(len(name.encode(errors="surrogatepass")) for name in names) > MAX_PRINCIPAL_BYTES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the owner and the renewers of a token have more than {MAX_PRINCIPAL_BYTES} bytes",
            remedy="name fewer renewers",
        )


def _check_count(image: ClusterImage, owner: str, rules: TokenRules, now_ms: int) -> None:
    tokens = image.delegation_tokens.values()
    if len(tokens) >= rules.max_tokens and _count(tokens, now_ms) >= rules.max_tokens:
        raise _too_many("delegation.token.max.tokens", rules.max_tokens, "the cluster")
    own = [token for token in tokens if token.owner == owner]
    if (
        len(own) >= rules.max_tokens_per_owner
        and _count(own, now_ms) >= rules.max_tokens_per_owner
    ):
        raise _too_many(
            "delegation.token.max.tokens.per.owner", rules.max_tokens_per_owner, "the owner"
        )
