"""What a SASL mechanism implements on the server's side, and what it is created from (X2)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from penstock.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.security.delegation_token import TokenLogins
    from penstock.security.sasl.gssapi import Acceptor, KeytabSettings
    from penstock.security.sasl.oauthbearer import KeySource, KeySourceSettings


class SaslServer(Protocol):
    """The login of one client: pass every message of the client to `step` until `done`.

    An instance serves one login. After an error, or once it is done, it must not be used again.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def done(self) -> bool: ...

    @property
    def principal_name(self) -> str:
        """The name of the user. Raises KafkaError before the login is done."""
        ...

    @property
    def expires_ms(self) -> int | None:
        """When the credentials expire, in milliseconds since the epoch; None if they do not."""
        ...

    @property
    def prepare(self) -> "Callable[[bytes], Awaitable[None] | None] | None":
        """Returns, for a message, what to wait for before `step`, such as a fetch of keys.

        None if the mechanism never waits. `step` works without it, but may refuse the message.
        """
        ...

    def step(self, response: bytes) -> bytes:
        """Returns the challenge to send; raises SASL_AUTHENTICATION_FAILED if it refuses."""
        ...


@runtime_checkable
class ClaimsName(Protocol):
    """A `SaslServer` that knows which user a refused client claimed to be."""

    @property
    def claimed_name(self) -> str | None: ...


@runtime_checkable
class AcceptsTokens(Protocol):
    """A `SaslServer` whose clients may log in with a delegation token instead of a password."""

    @property
    def token_id(self) -> str | None:
        """The id of the token that the client has logged in with; None if it was a password."""
        ...


class ServerContext(NamedTuple):
    """What the broker provides to the mechanisms of one listener."""

    setting: Callable[[str, str], str | None]
    """`setting(name, mechanism)` returns the text of a setting of the listener."""
    user_configs: Callable[[str], Mapping[str, str]]
    """Returns the stored configs of a user, which include its SCRAM credentials."""
    new_nonce: Callable[[], str]
    decoys: "Decoys"
    """The credentials of users that do not exist."""
    now_ms: Callable[[], int]
    """Returns the time in milliseconds since the epoch."""
    keys_of: "Callable[[KeySourceSettings], KeySource]"
    """Returns the keys of a token issuer, which the broker fetches and keeps."""
    acceptor_of: "Callable[[KeytabSettings], Acceptor]"
    """Returns what accepts Kerberos tickets for a principal; raises KafkaError if it cannot."""
    report: Callable[[str], None]
    """Writes a reason to the broker's log that the client must not learn, at a limited rate."""
    tokens: "TokenLogins | None" = None
    """Delegation tokens, with which clients log in like users."""


class Decoys(Protocol):
    """Credentials for unknown users, which look like those of known users."""

    def scram_credential(self, mechanism: str, user: str) -> str:
        """Returns the text of a SCRAM credential, the same for each login; see `decoy_credential`.

        It must take the same time whether or not the user exists.
        """
        ...


class ServerMechanism(NamedTuple):
    """An entry of the table of mechanisms.

    `create` checks the settings, raising KafkaError, and returns the function that creates the
    `SaslServer` for a login.
    """

    name: str
    create: Callable[[ServerContext], Callable[[], SaslServer]]


def authentication_error(message: str) -> KafkaError:
    """Returns the error that refuses a client. It receives the message, so no user is named."""
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def bad_credentials(mechanism: str) -> KafkaError:
    """Returns the one error for an unknown user and for a wrong password."""
    return authentication_error(
        f"authentication failed: wrong user name or password (SASL mechanism {mechanism})"
    )


def already_ended(mechanism: str) -> KafkaError:
    return KafkaError(
        ErrorCode.ILLEGAL_SASL_STATE,
        f"the {mechanism} exchange has already ended; open a new connection to log in again",
    )


def not_done(mechanism: str) -> KafkaError:
    return KafkaError(
        ErrorCode.ILLEGAL_SASL_STATE, f"the {mechanism} exchange has not ended, so nobody logged in"
    )
