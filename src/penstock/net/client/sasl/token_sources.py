"""Where a client's access tokens come from: a token endpoint, a file, a callback, or nowhere.

Everything here blocks, and is called in threads.
"""

import base64
import json
import logging
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.core.errors import KafkaError
from penstock.net.client.errors import AuthenticationError, ConfigError, DisconnectError
from penstock.net.http.client import (
    HttpClientError,
    HttpTimeouts,
    issuer_tls,
    read_file_url,
    send_request,
)
from penstock.security.oauth.claim_rules import to_ms
from penstock.security.oauth.jwt import InvalidTokenError, encode_base64url, parse_jwt

logger = logging.getLogger(__name__)

_LOGIN: Final = "unsecuredLogin"
_FINAL_STATUSES: Final = frozenset((400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412))
"""Responses of a token endpoint after which another attempt is pointless."""


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The `sasl_oauthbearer_…` and `sasl_login_…` settings of a client."""

    token_endpoint_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    urlencodes_header: bool = False
    subject_claim: str = "sub"
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    refresh_window_factor: float = 0.8
    refresh_window_jitter: float = 0.05
    refresh_min_period_s: int = 60
    refresh_buffer_s: int = 300
    token_provider: Any = None
    """An object with a method `token`, as in kafka-python, or a function that returns a token."""


class AccessToken(NamedTuple):
    """A token, and what the client knows about it. The repr does not show it."""

    value: str
    principal: str
    issued_ms: int
    expires_ms: int
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"AccessToken({self.principal!r}, {self.expires_ms})"


TokenSource = Callable[[], AccessToken]
"""Returns a new token. Raises AuthenticationError, or DisconnectError if it may work later."""


def new_token_source(settings: OAuthSettings, options: Mapping[str, str]) -> TokenSource:
    """Returns the source that the settings and the options of the login module name.

    Raises ConfigError if there is none, or something is missing.
    """
    url = settings.token_endpoint_url
    extensions = {
        name.removeprefix(prefix): value
        for prefix in ("extension_", f"{_LOGIN}Extension_")
        for name, value in options.items()
        if name.startswith(prefix)
    }
    if settings.token_provider is not None:
        return lambda: _from_provider(settings, extensions)
    if url and url.lower().startswith("file:"):
        return lambda: _from_file(settings, url, extensions)
    if url:
        return _endpoint_source(settings, url, options, extensions)
    if any(name.startswith(f"{_LOGIN}StringClaim_") for name in options):
        return lambda: _unsecured(options, extensions)
    raise ConfigError(
        "`sasl_mechanism`=OAUTHBEARER needs a source of tokens",
        remedy="set `sasl_oauthbearer_token_endpoint_url` to the token endpoint of your identity "
        "provider or to file://… with a token, or `sasl_oauth_token_provider`",
    )


def read_token(
    value: str, settings: OAuthSettings, origin: str, extensions: Mapping[str, str]
) -> AccessToken:
    """Returns a token with what its claims say; raises AuthenticationError if it is of no use.

    Its signature is not verified: that is up to the broker.
    """
    value = value.strip()
    now_ms = int(time.time() * 1000)
    try:
        claims = parse_jwt(value).claims
        expires, issued = claims.seconds("exp"), claims.seconds("iat")
        subject = (claims.text(settings.subject_claim) or "").strip()
    except InvalidTokenError as error:
        raise AuthenticationError(
            f"{origin} has no usable token: {error}", remedy="it must be a signed JWT"
        ) from None
    for name, claim in (("exp", expires), (settings.subject_claim, subject)):
        if not claim:
            raise AuthenticationError(
                f"the token from {origin} has no claim {name!r}, which brokers need",
                remedy="change what the identity provider issues, or set "
                "`sasl_oauthbearer_sub_claim_name`",
            )
    expires_ms = to_ms(expires or 0)
    if expires_ms <= now_ms:
        raise AuthenticationError(
            f"the token from {origin} expired {(now_ms - expires_ms) // 1000} s ago",
            remedy="obtain a new one, and check the clocks of this machine and the issuer",
        )
    issued_ms = now_ms if issued is None else to_ms(issued)
    return AccessToken(value, subject, issued_ms, expires_ms, extensions)


def _from_provider(settings: OAuthSettings, extensions: Mapping[str, str]) -> AccessToken:
    provider = settings.token_provider
    origin = "`sasl_oauth_token_provider`"
    token = getattr(provider, "token", provider)
    try:
        value = token()
        more: Mapping[str, str] = getattr(provider, "extensions", dict)()
    except Exception as error:
        raise DisconnectError(
            f"{origin} failed: {type(error).__name__}: {error}", remedy="correct this function"
        ) from error
    if not isinstance(value, str):
        raise AuthenticationError(
            f"{origin} returned {type(value).__name__}", remedy="it must return the token as text"
        )
    return read_token(value, settings, origin, {**extensions, **more})


def _from_file(settings: OAuthSettings, url: str, extensions: Mapping[str, str]) -> AccessToken:
    try:
        value = read_file_url(url).decode(errors="replace")
    except HttpClientError as error:
        raise AuthenticationError(
            f"the token file cannot be read: {error}",
            remedy="check `sasl_oauthbearer_token_endpoint_url`",
        ) from None
    return read_token(value, settings, url, extensions)


def _unsecured(options: Mapping[str, str], extensions: Mapping[str, str]) -> AccessToken:
    """Makes up a token without a signature, as Kafka's unsecured login does."""
    now_s = time.time()
    claims: dict[str, object] = {
        "iat": now_s,
        "exp": now_s + float(options.get(f"{_LOGIN}LifetimeSeconds") or 3600),
    }
    for name, value in options.items():
        kind, _, claim = name.removeprefix(_LOGIN).partition("Claim_")
        if kind == "String":
            claims[claim] = value
        elif kind == "Number":
            claims[claim] = float(value)
        elif kind == "List":
            claims[claim] = value[1:].split(value[:1]) if value else []
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    token = ".".join(map(encode_base64url, parts)) + "."
    subject = options.get(f"{_LOGIN}PrincipalClaimName") or "sub"
    origin = "`sasl_jaas_config`"
    return read_token(token, OAuthSettings(subject_claim=subject), origin, extensions)


def _endpoint_source(
    settings: OAuthSettings,
    url: str,
    options: Mapping[str, str],
    extensions: Mapping[str, str],
) -> TokenSource:
    client_id = settings.client_id or options.get("clientId")
    secret = settings.client_secret or options.get("clientSecret")
    for value, name in ((client_id, "id"), (secret, "secret")):
        if not value:
            raise ConfigError(
                f"`sasl_oauthbearer_client_credentials_client_{name}` is missing: the token "
                f"endpoint {url} needs it"
            )
    try:
        tls = issuer_tls(options)
    except KafkaError as error:
        raise ConfigError(f"`sasl_jaas_config`: {error.message}") from None
    parts = [client_id or "", secret or ""]
    if settings.urlencodes_header:
        parts = [urllib.parse.quote_plus(part) for part in parts]
    headers = {
        "Authorization": f"Basic {base64.b64encode(':'.join(parts).encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Cache-Control": "no-cache",
    }
    form = {"grant_type": "client_credentials"}
    scope = settings.scope or options.get("scope")
    if scope:
        form["scope"] = scope
    body = urllib.parse.urlencode(form).encode()
    timeouts = HttpTimeouts(settings.connect_timeout_ms, settings.read_timeout_ms)

    def request_once() -> str:
        try:
            reply = send_request(url, body=body, headers=headers, tls=tls, timeouts=timeouts)
        except HttpClientError as error:
            raise DisconnectError(
                f"the token endpoint cannot be used: {error}",
                remedy="check `sasl_oauthbearer_token_endpoint_url` and that this machine can "
                "reach it",
            ) from None
        if reply.status in (200, 201):
            return _token_of(url, reply.body)
        detail = _error_of(reply.body)
        if reply.status in _FINAL_STATUSES:
            raise AuthenticationError(
                f"the token endpoint {url} refuses client {client_id} with HTTP status "
                f"{reply.status}{detail}",
                remedy="check the client id, the client secret and the scope",
            )
        raise DisconnectError(
            f"the token endpoint {url} responded with HTTP status {reply.status}{detail}",
            remedy="try again later",
        )

    def request() -> AccessToken:
        deadline = time.monotonic() + settings.retry_backoff_max_ms / 1000
        delay_s = settings.retry_backoff_ms / 1000
        while True:
            try:
                return read_token(request_once(), settings, url, extensions)
            except DisconnectError as error:
                if time.monotonic() + delay_s >= deadline:
                    raise
                logger.debug("%s; next attempt in %.1f s", error.message, delay_s)
                time.sleep(delay_s)
                delay_s *= 2

    return request


def _token_of(url: str, body: bytes) -> str:
    try:
        token = json.loads(body)["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        token = None
    if not isinstance(token, str):
        raise AuthenticationError(
            f"the response of {url} has no access_token",
            remedy="check `sasl_oauthbearer_token_endpoint_url`: is it a token endpoint?",
        )
    return token


def _error_of(body: bytes) -> str:
    try:
        values = json.loads(body)
        texts = [str(values[name]) for name in ("error", "error_description") if values.get(name)]
    except (ValueError, AttributeError, RecursionError):
        return ""
    return f" ({': '.join(texts)[:300]})" if texts else ""
