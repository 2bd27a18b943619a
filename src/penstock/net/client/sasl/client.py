"""What a SASL mechanism implements on the client's side, and the settings it is created from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.net.client.sasl.tickets import KerberosSettings
    from penstock.net.client.sasl.token_sources import OAuthSettings


class SaslClient(Protocol):
    """The login on one connection: send `initial_response`, then what `evaluate_challenge` returns
    for every challenge of the broker, until it returns None.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def user(self) -> str: ...

    @property
    def prepare(self) -> Callable[[], None] | None:
        """Obtains what the login needs from elsewhere, such as a ticket; None if it needs nothing.

        It may block, so it is called in a thread, once, before `initial_response`. Raises
        AuthenticationError if nothing is to be had; DisconnectError if it may work later.
        """
        ...

    def initial_response(self) -> bytes: ...

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """Returns the next response, or None once the login is complete.

        Raises AuthenticationError when the broker rejects the login, or cannot prove that it knows
        the password.
        """
        ...


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The `sasl_…` settings of a client. The login comes from `jaas_config`, or from a user name
    with a password."""

    mechanism: str
    jaas_config: str | None = None
    username: str | None = None
    password: str | None = None
    is_token: bool = False
    """Whether user name and password are those of a delegation token; see `Credentials`."""
    oauth: "OAuthSettings | None" = None
    kerberos: "KerberosSettings | None" = None


class ClientMechanism(NamedTuple):
    """An entry of the table of mechanisms.

    `create` checks the settings, raising ConfigError, and returns the function that creates the
    `SaslClient` for a connection to a host.
    """

    name: str
    required_settings: tuple[str, ...]
    create: Callable[[SaslSettings], Callable[[str], SaslClient]]
