"""SASL PLAIN: user name and password in one message (RFC 4616, X2)."""

from collections.abc import Mapping
from hmac import compare_digest

from penstock.security.sasl import bad_credentials, illegal_state, not_done, refused

PLAIN = "PLAIN"


class PlainServer:
    """Compares what the client sends with the users that the configuration names."""

    mechanism = PLAIN

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users` are passwords by user name; see `jaas.plain_users`."""
        self._users = users
        self._name: str | None = None
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
            raise illegal_state(PLAIN)
        self._ended = True
        try:
            tokens = response.decode().split("\0")
        except UnicodeDecodeError as error:
            raise refused("invalid SASL/PLAIN response: it is not UTF-8") from error
        if len(tokens) != 3:
            raise refused(
                "invalid SASL/PLAIN response: expected authorization id, user name and password"
                f" separated by NUL, got {len(tokens)} parts"
            )
        authorization_id, user, password = tokens
        if not user:
            raise refused("authentication failed: no user name given")
        if not password:
            raise refused("authentication failed: no password given")
        expected = self._users.get(user)
        # An unknown user costs the same comparison, and no password equals the NUL one.
        equal = compare_digest((expected or "\0").encode(), password.encode())
        if not equal:
            raise bad_credentials(PLAIN)
        if authorization_id not in ("", user):
            raise refused(
                "authentication failed: the authorization id must be empty or the user name"
            )
        self._name = user
        return b""
