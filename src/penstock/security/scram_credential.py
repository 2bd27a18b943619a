"""SCRAM credentials, which the cluster stores instead of passwords (RFC 5802, X2)."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock.core.errors import ErrorCode, KafkaError

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384

_FIELDS = ("salt", "stored_key", "server_key", "iterations")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TEXT_SALT_SIZE = 26
"""The digits to base 36 that 130 bits take."""


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, with their numbers in AlterUserScramCredentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in SASL, which is also the key among the configs of a user."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The name of the hash in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.digest)

    def hash(self, message: bytes) -> bytes:
        return hashlib.new(self.digest, message).digest()


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Keys that verify a password but do not allow a login."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def to_text(self) -> str:
        """Returns the form in which it is stored among the configs of a user."""
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def from_text(cls, text: str) -> "ScramCredential":
        """Parses what `to_text` returned, in any order; raises KafkaError if it is invalid."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if sorted(parts) != sorted(_FIELDS):
            raise _malformed(f"it must consist of {', '.join(_FIELDS)}")
        try:
            salt, stored, server = (
                base64.b64decode(parts[name], validate=True) for name in _FIELDS[:3]
            )
            return cls(salt, stored, server, int(parts["iterations"]))
        except (binascii.Error, ValueError) as error:
            raise _malformed("a key is not base64, or the iterations are not a number") from error


def _malformed(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        f"the stored SCRAM credential is not valid: {reason}; set the user's password again",
    )


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Returns the slow hash of a password. As in Kafka, the password is not normalized."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_from_salted_password(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Returns the credential for a salted password of AlterUserScramCredentials."""
    stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
    return ScramCredential(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)


def random_text(bits: int) -> str:
    """Returns 130 random bits as Kafka writes them in nonces and salts: a number to base 36."""
    bits &= (1 << 130) - 1
    digits = ""
    while bits:
        bits, digit = divmod(bits, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


class CredentialShape(NamedTuple):
    """What a login reveals about a credential before the password is checked."""

    iterations: int = MIN_ITERATIONS
    salt_size: int = 0
    """0 for a salt that `random_text` made, as Kafka's own clients do."""

    @classmethod
    def of(cls, credential: ScramCredential) -> "CredentialShape":
        is_text = 20 <= len(credential.salt) <= _TEXT_SALT_SIZE and all(
            character in _DIGITS for character in credential.salt.decode("latin-1")
        )
        return cls(credential.iterations, 0 if is_text else len(credential.salt))


def decoy_credential(
    mechanism: ScramMechanism, secret: bytes, user: str, known_shapes: Sequence[CredentialShape]
) -> ScramCredential:
    """Returns a credential for an unknown user: always the same one, which no password matches.

    With it the exchange fails as with a wrong password, so that a client cannot find out which
    users exist. `secret` must be known to the brokers alone. `known` are the shapes of all users'
    credentials, sorted: unknown users have them in the same proportions.
    """
    seed = user.encode(errors="surrogatepass")
    draw = int.from_bytes(hmac.digest(secret, b"shape" + seed, "sha256")[:8], "big")
    shape = known_shapes[draw * len(known_shapes) >> 64] if known_shapes else CredentialShape()
    random_salt = hashlib.shake_256(secret + b"salt" + seed).digest(shape.salt_size or 32)
    salt = random_salt
    if not shape.salt_size:
        salt = random_text(int.from_bytes(random_salt, "big")).encode()
    stored_key = mechanism.hmac(secret, b"stored key" + seed)
    server_key = mechanism.hmac(secret, b"server key" + seed)
    return ScramCredential(salt, stored_key, server_key, shape.iterations)
