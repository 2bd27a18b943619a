"""Tokens without a signature, which anybody can make up: Kafka's default, here only if switched on.

They are for tests: as in Kafka's OAuthBearerUnsecuredValidatorCallbackHandler, the options
`unsecuredValidator…` of the login module say what their claims must be.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.oauth.claim_rules import ValidToken, to_ms
from penstock.security.oauth.jwt import InvalidTokenError, parse_jwt

OPTION_PREFIX: Final = "unsecuredValidator"


class UnsecuredRules(NamedTuple):
    """Accepts any token that is not expired."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "UnsecuredRules":
        """Reads the options of the login module; raises KafkaError for an invalid one."""

        def text(name: str) -> str:
            return options.get(OPTION_PREFIX + name, "").strip()

        skew = text("AllowableClockSkewMs") or "0"
        if not (skew.isascii() and skew.isdigit()):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"sasl.jaas.config: {OPTION_PREFIX}AllowableClockSkewMs is not a whole number",
            )
        return cls(
            text("PrincipalClaimName") or "sub",
            text("ScopeClaimName") or "scope",
            tuple(text("RequiredScope").split()),
            int(skew),
        )

    def check(self, token: str, now_ms: int) -> ValidToken:
        """Raises InvalidTokenError with the reason unless the token is right."""
        jwt = parse_jwt(token)
        if jwt.algorithm != "none" or jwt.signature:
            raise InvalidTokenError("an unsecured token must have the algorithm none, unsigned")
        claims = jwt.claims
        expires, issued = claims.seconds("exp"), claims.seconds("iat")
        if expires is None:
            raise InvalidTokenError("the claim 'exp' is missing")
        if now_ms - self.clock_skew_ms >= to_ms(expires):
            raise InvalidTokenError("it has expired")
        if issued is not None and (
            to_ms(issued) > now_ms + self.clock_skew_ms or expires <= issued
        ):
            raise InvalidTokenError("it was issued in the future, or expires before it was issued")
        subject = claims.text(self.principal_claim) or ""
        if not subject.strip():
            raise InvalidTokenError(f"the claim {self.principal_claim!r} is missing or empty")
        scope = frozenset(claims.texts(self.scope_claim))
        if not scope.issuperset(self.required_scope):
            raise InvalidTokenError(
                "it lacks a scope", missing_scope=f"[{', '.join(self.required_scope)}]"
            )
        return ValidToken(subject, to_ms(expires), scope)
