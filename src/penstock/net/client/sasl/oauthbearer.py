"""SASL OAUTHBEARER: sends an access token, which all connections of a client share (KIP-768)."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.core.errors import KafkaError
from penstock.net.client.errors import AuthenticationError, ConfigError, DisconnectError
from penstock.net.client.sasl.client import ClientMechanism, SaslClient, SaslSettings
from penstock.net.client.sasl.token_sources import (
    AccessToken,
    OAuthSettings,
    TokenSource,
    new_token_source,
)
from penstock.security.sasl.oauthbearer import (
    END,
    OAUTHBEARER,
    encode_first_message,
    invalid_extension,
    jaas_options,
)

logger = logging.getLogger(__name__)

_MAX_WAIT_S: Final = 60.0


def refresh_at_ms(token: AccessToken, settings: OAuthSettings, now_ms: int, jitter: float) -> int:
    """Returns when to obtain the next token, as Kafka computes it. `jitter` is from 0 to 1."""
    factor = settings.refresh_window_factor + settings.refresh_window_jitter * jitter
    expires_ms = token.expires_ms
    min_period_ms = 1000 * settings.refresh_min_period_s
    buffer_ms = 1000 * settings.refresh_buffer_s
    if now_ms + min_period_ms + buffer_ms > expires_ms:
        return now_ms + int((expires_ms - now_ms) * factor)
    proposed_ms = token.issued_ms + int((expires_ms - token.issued_ms) * factor)
    return max(min(proposed_ms, expires_ms - buffer_ms), now_ms + min_period_ms)


class TokenCache:
    """The current token of a client; obtained when it is needed, and before it expires."""

    def __init__(self, source: TokenSource, settings: OAuthSettings) -> None:
        self._source = source
        self._settings = settings
        self._lock = threading.Lock()
        self._token: AccessToken | None = None
        self._refresh_ms = 0

    def obtain(self) -> AccessToken:
        """Returns a token that is not due to be replaced. Blocks; call it in a thread.

        Raises AuthenticationError if there is none; DisconnectError if there was one before and
        another attempt may succeed.
        """
        if not self._lock.acquire(timeout=_MAX_WAIT_S):
            raise DisconnectError("the source of access tokens does not respond")
        try:
            now_ms = int(time.time() * 1000)
            token = self._token
            if token is not None and now_ms < self._refresh_ms:
                return token
            return self._replace(token, now_ms)
        finally:
            self._lock.release()

    def _replace(self, old: AccessToken | None, now_ms: int) -> AccessToken:
        settings = self._settings
        try:
            token = self._source()
        except KafkaError as error:
            if old is not None and now_ms < old.expires_ms:
                # The old one is still valid: used until then, with pauses between attempts.
                logger.warning("no new access token, the old one stays: %s", error.message)
                self._refresh_ms = now_ms + settings.retry_backoff_max_ms
                return old
            if old is None and isinstance(error, DisconnectError):
                raise AuthenticationError(error.cause, remedy=error.remedy) from error
            raise
        name = invalid_extension(dict(token.extensions))
        if name is not None:
            raise AuthenticationError(
                f"the SASL extension {name!r} cannot be sent",
                remedy="its name must have letters only, its value printable characters",
            )
        self._token = token
        now_ms = int(time.time() * 1000)
        self._refresh_ms = refresh_at_ms(token, settings, now_ms, random.random())
        return token


class OAuthBearerClient:
    """One message with the token; a second one if the broker refuses it."""

    mechanism = OAUTHBEARER

    def __init__(self, tokens: TokenCache) -> None:
        self._tokens = tokens
        self._token: AccessToken | None = None
        self._is_refused = False

    @property
    def user(self) -> str:
        return "(no token)" if self._token is None else self._token.principal

    def prepare(self) -> None:
        self._token = self._tokens.obtain()

    def initial_response(self) -> bytes:
        assert self._token is not None
        return encode_first_message(self._token.value, dict(self._token.extensions))

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        if self._is_refused:
            raise AuthenticationError(
                f"the broker refuses the token of {self.user}: "
                f"{challenge.decode(errors='replace')[:300]}"
            )
        self._is_refused = True
        return END


def _create(settings: SaslSettings) -> Callable[[str], SaslClient]:
    oauth = settings.oauth or OAuthSettings()
    try:
        options = jaas_options(settings.jaas_config)
    except KafkaError as error:
        message = error.message.replace("sasl.jaas.config", "`sasl_jaas_config`", 1)
        raise ConfigError(message) from None
    tokens = TokenCache(new_token_source(oauth, options), oauth)
    return lambda host: OAuthBearerClient(tokens)


OAUTHBEARER_MECHANISM: Final = ClientMechanism(
    OAUTHBEARER, ("sasl_oauthbearer_token_endpoint_url",), _create
)
