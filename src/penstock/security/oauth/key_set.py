"""A JSON Web Key Set: the public keys of a token issuer, and signatures by them (RFC 7517, X2).

Only asymmetric algorithms are known, and each only with its own type of key: a token cannot choose
`none`, nor have its signature computed with HMAC from a public key.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.oauth.jwt import InvalidTokenError, Jwt

MISSING_PACKAGE: Final = "OAUTHBEARER needs the Python package PyJWT"
MISSING_PACKAGE_REMEDY: Final = 'pip install "penstock[oauth]"'

_MAX_KEYS: Final = 200
_MIN_RSA_BITS: Final = 2048
_MAX_RSA_BITS: Final = 8192
"""Checking a signature with a longer key would occupy the event loop."""
_MAX_TRIED_KEYS: Final = 2
"""How many keys are tried for a token that names none."""

_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *_CURVES,
)
"""What a token may be signed with."""


class KeySetError(Exception):
    """A document that is not a key set, or has no key that could be used."""


class PublicKey(NamedTuple):
    """A key that verifies signatures."""

    key_id: str | None
    kind: str
    """RSA, or the name of an elliptic curve."""
    algorithm: str | None
    """The only algorithm that the key may be used with; None for any of its kind."""
    key: Any

    def suits(self, algorithm: str) -> bool:
        return self.kind == _CURVES.get(algorithm, "RSA") and self.algorithm in (None, algorithm)


class KeySet:
    """The keys of an issuer."""

    def __init__(self, keys: list[PublicKey]) -> None:
        self._keys = keys

    def has(self, key_id: str | None) -> bool:
        """Returns whether there is a key with this id; of tokens without an id always True."""
        return key_id is None or any(key.key_id == key_id for key in self._keys)

    def verify(self, token: Jwt) -> None:
        """Raises InvalidTokenError unless one of the keys has signed the token."""
        algorithm = token.algorithm
        if algorithm not in ALGORITHMS:
            raise InvalidTokenError(f"the algorithm {algorithm[:20]!r} is not accepted")
        keys = [
            key for key in self._keys if key.suits(algorithm) and token.key_id in (None, key.key_id)
        ][:_MAX_TRIED_KEYS]
        if not keys:
            named = "" if token.key_id is None else f" with the id {token.key_id[:100]!r}"
            raise InvalidTokenError(f"the issuer has no key{named} for {algorithm}")
        verify = load_algorithms()[algorithm].verify
        if not any(verify(token.signed, key.key, token.signature) for key in keys):
            raise InvalidTokenError("the signature is wrong")


def load_algorithms() -> Mapping[str, Any]:
    """Returns PyJWT's algorithms by name; raises KafkaError if PyJWT is not installed."""
    try:
        from jwt.algorithms import get_default_algorithms, has_crypto
    except ImportError:
        raise missing_package() from None
    if not has_crypto:
        raise missing_package()
    return get_default_algorithms()


def missing_package() -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG, MISSING_PACKAGE, remedy=f"run {MISSING_PACKAGE_REMEDY}"
    )


def parse_key_set(document: bytes) -> KeySet:
    """Returns the usable keys of a document; raises KeySetError if it has none."""
    try:
        members = msgspec.json.decode(document, type=dict[str, Any]).get("keys")
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise KeySetError(f"it is not a JSON object ({error})") from None
    if not isinstance(members, list):
        raise KeySetError("it has no list named keys")
    if len(members) > _MAX_KEYS:
        raise KeySetError(f"it has {len(members)} keys, more than {_MAX_KEYS} are not accepted")
    keys = [key for member in members if (key := _parse_key(member)) is not None]
    if not keys:
        raise KeySetError("it has no RSA or EC key for signatures")
    return KeySet(keys)


def _parse_key(member: object) -> PublicKey | None:
    """Returns a key, or None if it is of another type, for another use, or invalid."""
    if not isinstance(member, dict) or member.get("use", "sig") != "sig":
        return None
    if "key_ops" in member and "verify" not in (member["key_ops"] or ()):
        return None
    algorithms = load_algorithms()
    names: tuple[str, ...]
    match member.get("kty"):
        case "RSA":
            algorithm, names, kind = "RS256", ("kty", "n", "e"), "RSA"
        case "EC" if member.get("crv") in _CURVES.values():
            algorithm, names, kind = "ES256", ("kty", "crv", "x", "y"), member["crv"]
        case _:
            return None
    try:
        # Only the public members: a private key in the document must not be used.
        key = algorithms[algorithm].from_jwk({name: member[name] for name in names})
    except Exception:  # noqa: BLE001 - whatever is wrong with one key, the others count
        return None
    if kind == "RSA" and not _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS:
        return None
    return PublicKey(_text(member.get("kid")), kind, _text(member.get("alg")), key)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
