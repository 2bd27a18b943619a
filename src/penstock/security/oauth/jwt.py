"""A JSON Web Token in compact serialization, taken apart within strict bounds (RFC 7515, X2)."""

import base64
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

MAX_TOKEN_BYTES: Final = 64 * 1024
"""Tokens of identity providers with hundreds of groups have some 20 KiB."""
_MAX_CLAIMS: Final = 1000

_PARTS: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)", re.ASCII)

T = TypeVar("T")


class InvalidTokenError(Exception):
    """A token that is refused; the message is the reason, for the broker's log.

    `missing_scope` has the scopes that the token lacks, as Kafka formats them, if that is why.
    """

    def __init__(self, reason: str, missing_scope: str | None = None) -> None:
        super().__init__(reason)
        self.missing_scope = missing_scope


class Jwt(NamedTuple):
    """The parts of a token. Nothing is verified."""

    algorithm: str
    key_id: str | None
    claims: "Claims"
    signed: bytes
    """What the signature is of."""
    signature: bytes


class Claims:
    """The claims of a token, decoded when they are read."""

    def __init__(self, values: Mapping[str, msgspec.Raw]) -> None:
        self._values = values

    def get(self, name: str, kind: type[T], description: str) -> T | None:
        """Returns a claim; None if it is missing or null.

        Raises InvalidTokenError if it is not of the kind, which `description` names.
        """
        raw = self._values.get(name)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=kind | None)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            raise InvalidTokenError(f"the claim {name!r} is not {description}") from None

    def seconds(self, name: str) -> float | None:
        """Returns a claim that is a point in time."""
        return self.get(name, float, "a number")

    def text(self, name: str) -> str | None:
        return self.get(name, str, "a text")

    def texts(self, name: str) -> list[str]:
        """Returns a claim that is a text or a list of texts; empty if it is missing."""
        value = self.get(name, object, "valid JSON")
        values = [value] if isinstance(value, str) else value or []
        if not isinstance(values, list):
            raise InvalidTokenError(f"the claim {name!r} is not a text or a list of texts")
        texts = [text for text in values if isinstance(text, str)]
        if len(texts) < len(values):
            raise InvalidTokenError(f"the claim {name!r} is not a list of texts")
        return texts


def parse_jwt(token: str) -> Jwt:
    """Takes a token apart; raises InvalidTokenError if it is not one, or beyond the bounds."""
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidTokenError(
            f"the token has {len(token)} bytes, more than {MAX_TOKEN_BYTES} are not accepted"
        )
    match = _PARTS.fullmatch(token)
    if match is None:
        parts = token.count(".") + 1
        kind = "encrypted, which is not supported" if parts == 5 else "not a signed JWT"
        raise InvalidTokenError(f"the token is {kind}: it has {parts} parts")
    header = _decode_object(match[1], "header")
    algorithm = _header_text(header, "alg")
    if not algorithm:
        raise InvalidTokenError("the token's header names no algorithm (alg)")
    if "crit" in header or "b64" in header:
        raise InvalidTokenError("the token's header demands extensions (crit) that are not known")
    return Jwt(
        algorithm,
        _header_text(header, "kid"),
        Claims(_decode_object(match[2], "payload")),
        token[: match.end(2)].encode(),
        decode_base64url(match[3]),
    )


def decode_base64url(text: str) -> bytes:
    """Decodes base64url without padding; raises InvalidTokenError."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise InvalidTokenError("the token is not valid base64url") from None


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode_object(part: str, name: str) -> dict[str, msgspec.Raw]:
    data = decode_base64url(part)
    try:
        # Only the members themselves: what is nested in them is skipped, up to a limited depth.
        values = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise InvalidTokenError(f"the token's {name} is not a JSON object") from None
    if len(values) > _MAX_CLAIMS:
        raise InvalidTokenError(f"the token's {name} has more than {_MAX_CLAIMS} members")
    return values


def _header_text(header: Mapping[str, msgspec.Raw], name: str) -> str | None:
    return Claims(header).text(name)
