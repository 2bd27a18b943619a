"""SASL PLAIN: sends the password itself, so that only TLS keeps it secret (RFC 4616)."""

from collections.abc import Callable
from typing import Final

from penstock.net.client.errors import ConfigError
from penstock.net.client.sasl.client import ClientMechanism, SaslClient, SaslSettings
from penstock.net.client.sasl.credentials import (
    PASSWORD_SETTINGS,
    Credentials,
    password_credentials,
)
from penstock.security.jaas import PLAIN_LOGIN_MODULE
from penstock.security.sasl.plain import PLAIN


class PlainClient:
    """One message with the user name and the password."""

    mechanism = PLAIN
    prepare = None

    def __init__(self, credentials: Credentials) -> None:
        self.user = credentials.user
        self._password = credentials.password

    def initial_response(self) -> bytes:
        return f"\0{self.user}\0{self._password}".encode()

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        return None


def _create(settings: SaslSettings) -> Callable[[str], SaslClient]:
    credentials = password_credentials(settings, PLAIN_LOGIN_MODULE)
    if settings.is_token:
        raise ConfigError(
            "delegation tokens (`sasl_tokenauth`) do not work with PLAIN",
            remedy="set `sasl_mechanism` to SCRAM-SHA-256 or SCRAM-SHA-512",
        )
    return lambda host: PlainClient(credentials)


PLAIN_MECHANISM: Final = ClientMechanism(PLAIN, PASSWORD_SETTINGS, _create)
