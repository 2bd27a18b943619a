"""Decisions about delegation tokens: lifetimes, rights and limits (X2)."""

import pytest
from msgspec.structs import replace

from penstock.controller.delegation_tokens import (
    MAX_PRINCIPAL_BYTES,
    MAX_REMOVALS,
    NewToken,
    TokenRules,
    create_token,
    expire_token,
    expired_tokens,
    is_expired,
    renew_token,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DelegationTokenRecord, Delete, Put
from penstock.core.errors import ErrorCode, KafkaError

RULES = TokenRules(max_lifetime_ms=1000, expiry_time_ms=100, max_tokens_per_owner=2)
MAX_LONG = 2**63 - 1
NOW = 5000
TOKEN = DelegationTokenRecord(
    "id", "User:ann", "User:ann", ("User:bob",), NOW, NOW + 1000, NOW + 100
)


def new(max_lifetime_ms: int = -1, renewer: str = "User:bob") -> NewToken:
    return NewToken("id", "User:ann", "User:ann", [renewer], max_lifetime_ms)


def image_of(*tokens: DelegationTokenRecord) -> ClusterImage:
    image = ClusterImage()
    image.apply(map(Put, tokens))
    return image


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return raised.value.code


@pytest.mark.parametrize(
    ("requested_ms", "max_ms", "expiry_ms"),
    [(-1, 1000, 100), (0, 1000, 100), (500, 500, 100), (50, 50, 50), (MAX_LONG, 1000, 100)],
)
def test_a_lifetime_is_limited(requested_ms: int, max_ms: int, expiry_ms: int) -> None:
    token = create_token(ClusterImage(), new(requested_ms), RULES, NOW)
    assert (token.max_ms - NOW, token.expiry_ms - NOW) == (max_ms, expiry_ms)


def test_times_fit_into_64_bits() -> None:
    rules = TokenRules(MAX_LONG, MAX_LONG, 1)
    token = create_token(ClusterImage(), new(MAX_LONG), rules, NOW)
    assert (token.max_ms, token.expiry_ms) == (MAX_LONG, MAX_LONG)
    assert renew_token(token, "User:ann", MAX_LONG, rules, NOW).expiry_ms == MAX_LONG
    assert expire_token(token, "User:ann", MAX_LONG, NOW)[1] == MAX_LONG


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "expiry_ms"),
    [(-1, 50, 150), (0, 50, 150), (20, 50, 70), (5000, 50, 150)],
)
def test_a_renewal_is_limited(period_ms: int, now_ms: int, expiry_ms: int) -> None:
    renewed = renew_token(TOKEN, "User:bob", period_ms, RULES, NOW + now_ms)
    assert renewed == replace(TOKEN, expiry_ms=NOW + expiry_ms)


def test_no_renewal_exceeds_the_lifetime() -> None:
    token = replace(TOKEN, expiry_ms=NOW + 990)
    assert renew_token(token, "User:ann", -1, RULES, NOW + 980).expiry_ms == TOKEN.max_ms


def test_a_token_is_valid_up_to_its_expiry() -> None:
    assert not is_expired(TOKEN, TOKEN.expiry_ms)
    assert is_expired(TOKEN, TOKEN.expiry_ms + 1)
    assert is_expired(replace(TOKEN, max_ms=NOW - 1), NOW)


def test_a_negative_period_removes_a_token_even_an_expired_one() -> None:
    late = NOW + 101
    assert expire_token(TOKEN, "User:bob", -1, late) == (Delete(TOKEN.key), late)
    with pytest.raises(KafkaError) as raised:
        expire_token(TOKEN, "User:bob", 0, late)
    assert code_of(raised) is ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize(
    ("token", "principal", "now_ms", "renewal", "expiry"),
    [
        (None, "User:ann", NOW, "NOT_FOUND", "NOT_FOUND"),
        (TOKEN, "User:carl", NOW, "OWNER_MISMATCH", "OWNER_MISMATCH"),
        (TOKEN, "User:ann", NOW + 101, "EXPIRED", "EXPIRED"),
        (TOKEN, "User:carl", NOW + 101, "EXPIRED", "OWNER_MISMATCH"),
    ],
)
def test_refusals_are_in_kafkas_order(
    token: DelegationTokenRecord | None, principal: str, now_ms: int, renewal: str, expiry: str
) -> None:
    with pytest.raises(KafkaError) as raised:
        renew_token(token, principal, -1, RULES, now_ms)
    assert code_of(raised).name == f"DELEGATION_TOKEN_{renewal}"
    with pytest.raises(KafkaError) as raised:
        expire_token(token, principal, 1, now_ms)
    assert code_of(raised).name == f"DELEGATION_TOKEN_{expiry}"


def test_an_owner_has_a_limited_number_of_tokens() -> None:
    tokens = [replace(TOKEN, token_id=str(number)) for number in range(2)]
    other = replace(TOKEN, token_id="other", owner="User:bob")
    create_token(image_of(tokens[0], other), new(), RULES, NOW)
    with pytest.raises(KafkaError) as raised:
        create_token(image_of(*tokens), new(), RULES, NOW)
    assert code_of(raised) is ErrorCode.POLICY_VIOLATION
    create_token(image_of(*tokens), new(), RULES, NOW + 101)  # they have expired


def test_a_token_fits_into_a_node() -> None:
    with pytest.raises(KafkaError) as raised:
        create_token(ClusterImage(), new(renewer="é" * (MAX_PRINCIPAL_BYTES // 2)), RULES, NOW)
    assert code_of(raised) is ErrorCode.POLICY_VIOLATION


def test_expired_tokens_are_removed_in_portions() -> None:
    image = image_of(*(replace(TOKEN, token_id=str(n)) for n in range(MAX_REMOVALS + 1)))
    assert expired_tokens(image, NOW) == []
    assert len(expired_tokens(image, NOW + 101)) == MAX_REMOVALS
