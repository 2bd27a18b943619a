"""The settings of delegation tokens, and how safe they are (X2)."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.broker.config.values import BrokerValues
from penstock.controller.delegation_tokens import TokenRules

SECRET_SETTING: Final = "delegation.token.secret.key"
_OLD_SECRET_SETTING: Final = "delegation.token.master.key"
_MIN_SECRET_LENGTH: Final = 16
_HOUR_MS: Final = 3_600_000


class TokenProblem(NamedTuple):
    """A setting that does not protect as it seems to, why, and the remedy."""

    setting: str
    problem: str
    remedy: str


def token_secret(values: BrokerValues) -> str:
    """Returns the secret that signs tokens; empty if there are none."""
    return values.text(SECRET_SETTING) or values.text(_OLD_SECRET_SETTING) or ""


def token_rules(values: BrokerValues) -> TokenRules:
    return TokenRules(
        values.int("delegation.token.max.lifetime.ms"),
        values.int("delegation.token.expiry.time.ms"),
        values.int("delegation.token.max.tokens.per.owner"),
    )


def describe_tokens(values: BrokerValues, scram_listeners: Sequence[str]) -> str | None:
    """Returns one line about logins with tokens, None if there are none.

    `scram_listeners` are those that offer SCRAM.
    """
    if not token_secret(values):
        return None
    rules = token_rules(values)
    return (
        f"log in as their owners at {', '.join(scram_listeners) or 'no listener'}; valid for "
        f"{_hours(rules.expiry_time_ms)}, renewed for up to {_hours(rules.max_lifetime_ms)}"
    )


def token_problems(values: BrokerValues, scram_listeners: Sequence[str]) -> Iterator[TokenProblem]:
    secret = token_secret(values)
    if not secret:
        return
    if not scram_listeners:
        yield TokenProblem(
            SECRET_SETTING,
            "nobody can log in with a delegation token: no listener offers SCRAM",
            "add SCRAM-SHA-256 or SCRAM-SHA-512 to sasl.enabled.mechanisms of a SASL listener",
        )
    if len(secret) < _MIN_SECRET_LENGTH:
        yield TokenProblem(
            SECRET_SETTING,
            f"has fewer than {_MIN_SECRET_LENGTH} characters: whoever has one token can find it "
            "out by trying, and compute the HMACs of all other tokens",
            "use a long random text, the same on all brokers",
        )


def _hours(period_ms: int) -> str:
    return f"{period_ms / _HOUR_MS:g} h"
