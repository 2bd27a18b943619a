"""What the claims of a token must say, as in Kafka's BrokerJwtValidator (X2)."""

from typing import Final, NamedTuple

from penstock.security.oauth.jwt import Claims, InvalidTokenError

_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: no session lasts longer."""


class ValidToken(NamedTuple):
    """What a login takes from a token."""

    principal_name: str
    expires_ms: int
    """When it expires, in milliseconds since the epoch."""
    scope: frozenset[str] = frozenset()


class ClaimRules(NamedTuple):
    """The `sasl.oauthbearer.…` settings of a broker about claims."""

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    clock_skew_ms: int = 30_000
    scope_claim: str = "scope"
    subject_claim: str = "sub"

    def check(self, claims: Claims, now_ms: int) -> ValidToken:
        """Raises InvalidTokenError with the reason unless all claims are right."""
        expires_ms = self._check_times(claims, now_ms)
        self._check_issuer(claims)
        self._check_audience(claims)
        subject = (claims.text(self.subject_claim) or "").strip()
        if not subject:
            raise InvalidTokenError(f"the claim {self.subject_claim!r} is missing or empty")
        return ValidToken(subject, expires_ms, self._scope(claims))

    def _check_times(self, claims: Claims, now_ms: int) -> int:
        expires, issued = claims.seconds("exp"), claims.seconds("iat")
        for name, value in (("exp", expires), ("iat", issued)):
            if value is None:
                raise InvalidTokenError(f"the claim {name!r} is missing")
            if value < 0:
                raise InvalidTokenError(f"the claim {name!r} is negative")
        assert expires is not None
        assert issued is not None
        expires_ms = to_ms(expires)
        not_before_ms = to_ms(claims.seconds("nbf") or 0)
        skew = f"with a clock skew of {self.clock_skew_ms // 1000} s"
        if now_ms - self.clock_skew_ms >= expires_ms:
            raise InvalidTokenError(f"it expired {(now_ms - expires_ms) // 1000} s ago, {skew}")
        if now_ms + self.clock_skew_ms < not_before_ms:
            raise InvalidTokenError(f"it is valid in {(not_before_ms - now_ms) // 1000} s, {skew}")
        if expires_ms < max(to_ms(issued), not_before_ms):
            raise InvalidTokenError("it expires before it is issued or valid (exp, iat, nbf)")
        return expires_ms

    def _check_issuer(self, claims: Claims) -> None:
        issuer = claims.text("iss")
        if self.issuer is not None and issuer != self.issuer:
            shown = "missing" if issuer is None else f"{issuer[:200]!r}"
            raise InvalidTokenError(f"the issuer (iss) is {shown}, expected is {self.issuer!r}")

    def _check_audience(self, claims: Claims) -> None:
        audiences = claims.texts("aud")
        if self.audiences.isdisjoint(audiences) and (self.audiences or audiences):
            shown = repr(", ".join(audiences)[:200]) if audiences else "missing"
            expected = ", ".join(sorted(self.audiences))
            raise InvalidTokenError(
                f"the audience (aud) is {shown}, expected is {expected}"
                if expected
                else f"the audience (aud) is {shown}, and sasl.oauthbearer.expected.audience names"
                " none"
            )

    def _scope(self, claims: Claims) -> frozenset[str]:
        scopes = [scope.strip() for scope in claims.texts(self.scope_claim)]
        if not all(scopes) or len(set(scopes)) < len(scopes):
            raise InvalidTokenError(f"the claim {self.scope_claim!r} is empty or has duplicates")
        return frozenset(scopes)


def to_ms(seconds: float) -> int:
    """Returns a point in time of a claim in milliseconds."""
    return int(min(max(seconds * 1000, 0), _LATEST_MS))
