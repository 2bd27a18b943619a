"""Delegation tokens as SCRAM credentials: what a client proves that it knows a token with (KIP-48).

The HMAC of a token's id is its password. It is computed as Kafka does, so that brokers of both
accept each other's tokens if they have the same secret.
"""

import base64
import hmac
from typing import Final, NamedTuple, Protocol

from penstock.security.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_from_salted_password,
    decoy_credential,
    salted_password,
)

_DECOY_PREFIX: Final = "\0token\0"
"""Keeps the decoys of token ids apart from those of users, whose names have no NUL."""


class TokenLogin(NamedTuple):
    """The credential for a token id. An unknown id gets one too, which nothing matches."""

    credential: ScramCredential
    owner: str | None
    """The name of the user whom the token stands for; None if there is no such token."""
    expires_ms: int = 0
    is_expired: bool = False


class TokenLogins(Protocol):
    """The delegation tokens of a broker, as SCRAM mechanisms look them up."""

    @property
    def is_enabled(self) -> bool: ...

    def login(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin:
        """It must take the same time, and return the same salt, whether or not there is a token."""
        ...


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def decoy_token_credential(
    mechanism: ScramMechanism, login_secret: bytes, token_id: str
) -> ScramCredential:
    """Returns the credential for an unknown token id; a token with this id would have its salt."""
    return decoy_credential(mechanism, login_secret, _DECOY_PREFIX + token_id, ())


def token_credential(mechanism: ScramMechanism, token_hmac: bytes, salt: bytes) -> ScramCredential:
    """Returns the credential of a token. It is slow, as each of SCRAM's is."""
    password = base64.b64encode(token_hmac).decode()
    salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
    return credential_from_salted_password(mechanism, salted, salt, MIN_ITERATIONS)
