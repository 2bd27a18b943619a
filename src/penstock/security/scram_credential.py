"""SCRAM credentials: what the cluster stores instead of a password (RFC 5802, X2)."""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.core.errors import ErrorCode, KafkaError

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384

_FIELDS = ("salt", "stored_key", "server_key", "iterations")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(IntEnum):
    """The mechanisms, with their numbers in AlterUserScramCredentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """Its name in SASL, which is also its key among the settings of a user."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The hash, as hashlib names it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def of_name(cls, name: str) -> "ScramMechanism | None":
        """The mechanism that SASL calls `name`; None where there is none."""
        return next((mechanism for mechanism in cls if mechanism.mechanism_name == name), None)

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.digest)

    def hash(self, message: bytes) -> bytes:
        return hashlib.new(self.digest, message).digest()


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Enough to check a password, not enough to log in with."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def to_text(self) -> str:
        """As it stands among the settings of a user."""
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def from_text(cls, text: str) -> "ScramCredential":
        """Read what `to_text` wrote; the parts may stand in any order."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if sorted(parts) != sorted(_FIELDS):
            raise _malformed(f"it must consist of {', '.join(_FIELDS)}")
        try:
            salt, stored, server = (
                base64.b64decode(parts[name], validate=True) for name in _FIELDS[:3]
            )
            return cls(salt, stored, server, int(parts["iterations"]))
        except (binascii.Error, ValueError) as error:
            raise _malformed("a key is not base64, or the iterations are no number") from error


def _malformed(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        f"the stored SCRAM credential is not valid: {reason}; set the user's password again",
    )


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """The slow hash of a password. Like Kafka, it takes the password's bytes as they are."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_from_salted_password(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential for what AlterUserScramCredentials carries."""
    stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
    return ScramCredential(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)


def credential_from_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """The credential for a password; the salt should be `random_text` of fresh random bits."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_from_salted_password(mechanism, salted, salt, iterations)


def random_text(bits: int) -> str:
    """130 random bits as Kafka writes them in nonces and salts: a number to the base of 36."""
    bits &= (1 << 130) - 1
    digits = ""
    while bits:
        bits, digit = divmod(bits, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def decoy_credential(
    mechanism: ScramMechanism, secret: bytes, user: str, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """A credential for a user that does not exist: always the same one, and no password fits.

    With it the exchange takes the course of a wrong password, so that nobody can find out which
    users there are. `secret` must be the broker's own.
    """
    seed = user.encode(errors="surrogatepass")
    salt = random_text(int.from_bytes(hmac.digest(secret, b"salt" + seed, "sha512"), "big"))
    stored_key = mechanism.hmac(secret, b"stored key" + seed)
    server_key = mechanism.hmac(secret, b"server key" + seed)
    return ScramCredential(salt.encode(), stored_key, server_key, iterations)
