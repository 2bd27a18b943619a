"""SASL OAUTHBEARER: an access token in one message (RFC 7628, KIP-255, KIP-768, X2)."""

import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.jaas import OAUTHBEARER_LOGIN_MODULE, login_module
from penstock.security.oauth.claim_rules import ClaimRules, ValidToken
from penstock.security.oauth.jwt import InvalidTokenError, parse_jwt
from penstock.security.oauth.key_refresh import RefreshSettings
from penstock.security.oauth.key_set import KeySet, load_algorithms
from penstock.security.oauth.unsecured import OPTION_PREFIX, UnsecuredRules
from penstock.security.sasl.server import (
    SaslServer,
    ServerContext,
    ServerMechanism,
    already_ended,
    authentication_error,
    not_done,
)

OAUTHBEARER: Final = "OAUTHBEARER"
END: Final = b"\x01"
"""The response of a client to an error."""

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
VALIDATOR_CLASSES: Final = (
    _PACKAGE + "OAuthBearerValidatorCallbackHandler",
    _PACKAGE + "secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's names for the check of tokens against the keys of their issuer."""
UNSECURED_VALIDATOR_CLASS: Final = (
    _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
HANDLER_SETTING: Final = "sasl.server.callback.handler.class"
JWKS_URL_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"

_SASLNAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST_MESSAGE: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01"
)
_BEARER: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class FirstMessage(NamedTuple):
    """The message with which a client logs in. The repr does not show the token."""

    token: str
    authorization_id: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"FirstMessage({self.authorization_id!r}, {sorted(self.extensions)})"


def parse_first_message(response: bytes) -> FirstMessage:
    """Raises SASL_AUTHENTICATION_FAILED for a message that is not one of OAUTHBEARER."""
    try:
        match = _FIRST_MESSAGE.fullmatch(response.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise authentication_error("invalid first message of an OAUTHBEARER client")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.pop("auth", ""))
    if bearer is None or bearer["scheme"].lower() != "bearer":
        raise authentication_error(
            "invalid first message of an OAUTHBEARER client: it has no auth=Bearer <token>"
        )
    return FirstMessage(bearer["token"], match["authzid"] or "", pairs)


def encode_first_message(token: str, extensions: dict[str, str]) -> bytes:
    """Returns the message of a client; `invalid_extension` says what may be in it."""
    pairs = "".join(f"\x01{name}={value}" for name, value in extensions.items())
    return f"n,,\x01auth=Bearer {token}{pairs}\x01\x01".encode()


def invalid_extension(extensions: dict[str, str]) -> str | None:
    """Returns the name of an extension that cannot be sent (KIP-342), or None."""
    for name, value in extensions.items():
        valid = _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
        if not valid or name == "auth":
            return name
    return None


class KeySource(Protocol):
    """The keys of an issuer, which the broker fetches."""

    @property
    def keys(self) -> KeySet | None:
        """None until they were fetched for the first time."""
        ...

    @property
    def problem(self) -> str:
        """Why the last fetch failed; empty if it did not."""
        ...

    def refresh(self) -> Awaitable[None] | None:
        """Fetches the keys if the back-off allows it; the caller may wait for the result.

        Returns None if they are not fetched now. Never raises.
        """
        ...


class KeySourceSettings(NamedTuple):
    """Where the keys of an issuer are, and how they are fetched."""

    url: str
    refresh: RefreshSettings = RefreshSettings()
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    tls: tuple[tuple[str, str], ...] = ()
    """The `ssl.…` options of the login module, for the connection to the issuer."""


class TokenValidator(Protocol):
    def prepare(self, token: str) -> Awaitable[None] | None:
        """Returns what to wait for before `validate`; None if there is nothing."""
        ...

    def validate(self, token: str) -> ValidToken:
        """Raises InvalidTokenError with the reason."""
        ...


class SignedTokenValidator:
    """Verifies signatures with the keys of the issuer, and the claims."""

    def __init__(self, source: KeySource, rules: ClaimRules, now_ms: Callable[[], int]) -> None:
        self._source = source
        self._rules = rules
        self._now_ms = now_ms

    def prepare(self, token: str) -> Awaitable[None] | None:
        try:
            key_id = parse_jwt(token).key_id
        except InvalidTokenError:
            return None  # `validate` refuses it
        keys = self._source.keys
        return None if keys is not None and keys.has(key_id) else self._source.refresh()

    def validate(self, token: str) -> ValidToken:
        jwt = parse_jwt(token)
        keys = self._source.keys
        if keys is None:
            reason = self._source.problem or "they are being fetched"
            raise InvalidTokenError(f"there are no keys of the issuer yet: {reason}")
        keys.verify(jwt)
        return self._rules.check(jwt.claims, self._now_ms())


class UnsecuredTokenValidator:
    """Accepts tokens without a signature."""

    def __init__(self, rules: UnsecuredRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms

    def prepare(self, token: str) -> Awaitable[None] | None:
        return None

    def validate(self, token: str) -> ValidToken:
        return self._rules.check(token, self._now_ms())


class OAuthBearerServer:
    """Validates the token of one login."""

    mechanism = OAUTHBEARER

    def __init__(self, validator: TokenValidator, report: Callable[[str], None]) -> None:
        """`report` is called with the reason of a refusal, which the client does not learn."""
        self._validator = validator
        self._report = report
        self._token: ValidToken | None = None
        self._error: str | None = None
        self._ended = False

    @property
    def done(self) -> bool:
        return self._token is not None

    @property
    def principal_name(self) -> str:
        if self._token is None:
            raise not_done(OAUTHBEARER)
        return self._token.principal_name

    @property
    def expires_ms(self) -> int | None:
        return None if self._token is None else self._token.expires_ms

    def prepare(self, response: bytes) -> Awaitable[None] | None:
        if self._ended or self._error is not None:
            return None
        try:
            return self._validator.prepare(parse_first_message(response).token)
        except KafkaError:
            return None  # `step` refuses it

    def step(self, response: bytes) -> bytes:
        if self._ended:
            raise already_ended(OAUTHBEARER)
        if self._error is not None:
            self._ended = True
            raise authentication_error(self._error)
        try:
            message = parse_first_message(response)
            token = self._validator.validate(message.token)
        except InvalidTokenError as error:
            self._report(str(error))
            # The client acknowledges the error with one more message, which ends the login.
            self._error = _error_text(error.missing_scope)
            return self._error.encode()
        except KafkaError:
            self._ended = True
            raise
        self._ended = True
        if message.authorization_id not in ("", token.principal_name):
            raise authentication_error(
                "authentication failed: the authorization id is not the name in the token"
            )
        self._token = token
        return b""


def _error_text(missing_scope: str | None) -> str:
    """Returns the JSON that Kafka sends. It does not say why, only the broker's log does."""
    if missing_scope is None:
        return '{"status":"invalid_token"}'
    return f'{{"status":"insufficient_scope", "scope":"{missing_scope}"}}'


def is_unsecured(handler: str, jaas_options: dict[str, str], url: str | None) -> bool:
    """Returns whether a listener accepts tokens without a signature.

    Unlike in Kafka, where they are the default, they have to be switched on: with the class name of
    Kafka's validator for them, or an option of it, and never together with the keys of an issuer.
    """
    if handler:
        return handler == UNSECURED_VALIDATOR_CLASS
    return not url and any(name.startswith(OPTION_PREFIX) for name in jaas_options)


def jaas_options(text: str | None) -> dict[str, str]:
    """Returns the options of the login module; empty without one. Raises KafkaError."""
    return dict(login_module(text, OAUTHBEARER_LOGIN_MODULE).options) if text else {}


def _create(context: ServerContext) -> Callable[[], SaslServer]:
    def setting(name: str) -> str:
        return (context.setting(name, OAUTHBEARER) or "").strip()

    def number(name: str, default: int) -> int:
        text = setting(name)
        return int(text) if text else default

    options = jaas_options(setting("sasl.jaas.config") or None)
    url = setting(JWKS_URL_SETTING)
    validator: TokenValidator
    if is_unsecured(setting(HANDLER_SETTING), options, url):
        rules = UnsecuredRules.from_options(options)
        validator = UnsecuredTokenValidator(rules, context.now_ms)
        return lambda: OAuthBearerServer(validator, context.report)
    if not url:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "OAUTHBEARER cannot verify tokens without the keys of their issuer",
            subject=JWKS_URL_SETTING,
            remedy="set it to the URL of the issuer's JWKS (https://… or file://…); to accept "
            f"unsigned tokens, for tests only, set {HANDLER_SETTING} to "
            f"{UNSECURED_VALIDATOR_CLASS}",
        )
    load_algorithms()
    prefix = "sasl.oauthbearer.jwks.endpoint."
    source = context.keys_of(
        KeySourceSettings(
            url,
            RefreshSettings(
                number(prefix + "refresh.ms", 3_600_000),
                number(prefix + "retry.backoff.ms", 100),
                number(prefix + "retry.backoff.max.ms", 10_000),
            ),
            number("sasl.login.connect.timeout.ms", 10_000),
            number("sasl.login.read.timeout.ms", 10_000),
            tuple(sorted(item for item in options.items() if item[0].startswith("ssl."))),
        )
    )
    audiences = setting("sasl.oauthbearer.expected.audience").split(",")
    claim_rules = ClaimRules(
        setting("sasl.oauthbearer.expected.issuer") or None,
        frozenset(audience.strip() for audience in audiences if audience.strip()),
        1000 * number("sasl.oauthbearer.clock.skew.seconds", 30),
        setting("sasl.oauthbearer.scope.claim.name") or "scope",
        setting("sasl.oauthbearer.sub.claim.name") or "sub",
    )
    validator = SignedTokenValidator(source, claim_rules, context.now_ms)
    return lambda: OAuthBearerServer(validator, context.report)


OAUTHBEARER_MECHANISM = ServerMechanism(OAUTHBEARER, _create)
