"""SASL PLAIN: user name and password in one message (RFC 4616, X2)."""

from collections.abc import Callable, Mapping
from hmac import compare_digest

from penstock.security.jaas import plain_users
from penstock.security.sasl.server import (
    SaslServer,
    ServerContext,
    ServerMechanism,
    already_ended,
    authentication_error,
    bad_credentials,
    not_done,
)

PLAIN = "PLAIN"


class PlainServer:
    """Compares the message of the client with the users in `sasl.jaas.config`."""

    mechanism = PLAIN
    expires_ms = None
    prepare = None

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users` are passwords by user name."""
        self._users = users
        self._name: str | None = None
        self.claimed_name: str | None = None
        self._ended = False

    @property
    def done(self) -> bool:
        return self._name is not None

    @property
    def principal_name(self) -> str:
        if self._name is None:
            raise not_done(PLAIN)
        return self._name

    def step(self, response: bytes) -> bytes:
        if self._ended:
            raise already_ended(PLAIN)
        self._ended = True
        try:
            tokens = response.decode().split("\0")
        except UnicodeDecodeError as error:
            raise authentication_error("invalid SASL/PLAIN response: it is not UTF-8") from error
        if len(tokens) != 3:
            raise authentication_error(
                "invalid SASL/PLAIN response: expected authorization id, user name and password"
                f" separated by NUL, got {len(tokens)} parts"
            )
        authorization_id, user, password = tokens
        self.claimed_name = user
        if not user:
            raise authentication_error("authentication failed: no user name given")
        if not password:
            raise authentication_error("authentication failed: no password given")
        expected = self._users.get(user)
        # An unknown user takes the same time, and no password equals the NUL one.
        equal = compare_digest((expected or "\0").encode(), password.encode())
        if not equal:
            raise bad_credentials(PLAIN)
        if authorization_id not in ("", user):
            raise authentication_error(
                "authentication failed: the authorization id must be empty or the user name"
            )
        self._name = user
        return b""


def _create(context: ServerContext) -> Callable[[], SaslServer]:
    users = plain_users(context.setting("sasl.jaas.config", PLAIN) or "")
    return lambda: PlainServer(users)


PLAIN_MECHANISM = ServerMechanism(PLAIN, _create)
