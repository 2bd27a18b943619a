"""The SASL login of one connection: its mechanism, its state and what it allows (X2).

After SaslHandshake version 1 the tokens come in SaslAuthenticate requests, after version 0 in
frames of their own. With `connections.max.reauth.ms`, or with credentials that expire, a client
must log in again on the same connection before that time is over (KIP-368).
"""

import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, ProtocolError
from penstock.net.server.connection import Connection, PendingResponse
from penstock.protocol.api_key import ApiKey
from penstock.security.sasl.server import AcceptsTokens, ClaimsName, SaslServer

_LENGTH = struct.Struct(">i")

_ALLOWED_BEFORE_LOGIN = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)

NewServer: TypeAlias = Callable[[], SaslServer]


def _ignore(user: str, mechanism: str) -> None:
    """A login that ends after its connection."""


def _ignore_failure(mechanism: str, user: str, error: KafkaError) -> None:
    """A failure that nobody counts."""


class SaslServerAuthenticator:
    """The state machine of logins on one connection."""

    def __init__(
        self,
        mechanisms: Mapping[str, NewServer],
        on_login: Callable[[str, str], None],
        *,
        clock: Clock,
        max_reauth_ms: Callable[[str], int] = lambda mechanism: 0,
        on_failure: Callable[[str, str, KafkaError], None] = _ignore_failure,
    ) -> None:
        """`on_login` is called with the user's name and the mechanism after each login,
        `on_failure` after each refusal, with the mechanism, the name that the client claims (empty
        if it is not known), and the error.

        `max_reauth_ms` returns how long a login with a mechanism is valid; 0 means permanently.
        """
        self.mechanisms = mechanisms
        self.expects_token = False
        """Whether the next frame is a token of the mechanism instead of a request."""
        self.user: str | None = None
        self.token_id: str | None = None
        """The delegation token of the last login; None if it was one without."""
        self._on_login = on_login
        self._on_failure = on_failure
        self._clock = clock
        self._max_reauth_ms = max_reauth_ms
        self._lifetime_ms = 0
        self._expires_ms: int | None = None
        self._server: SaslServer | None = None
        self._mechanism: str | None = None
        """The mechanism of the last login."""
        self._is_refused = False

    def close(self) -> None:
        """Notes that the connection has closed: the callbacks, which refer to it, are dropped."""
        self._on_login = _ignore
        self._on_failure = _ignore_failure

    def allows(self, api_key: ApiKey) -> bool:
        """Returns whether requests of an API are allowed in the current state.

        Raises ProtocolError if the client has not renewed its login in time.
        """
        if api_key in _ALLOWED_BEFORE_LOGIN:
            return True
        if self._expires_ms is not None and self._clock.monotonic_ms() >= self._expires_ms:
            raise ProtocolError(
                f"the login of {self.user} expired after {self._lifetime_ms} ms",
                remedy=(
                    "the client must log in again, on a new connection if it cannot on this one"
                ),
            )
        return self.user is not None

    def handshake(self, version: int, mechanism: str) -> None:
        """Starts a login; raises KafkaError if the mechanism or the state does not allow it."""
        new_server = self.mechanisms.get(mechanism)
        if new_server is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"this listener offers {', '.join(sorted(self.mechanisms))}, not {mechanism}",
                remedy="set sasl.mechanism in the client",
            )
        if self._is_refused:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE,
                "the login was refused",
                remedy="try on a new connection",
            )
        if self.user is not None and self._expires_ms is None:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE,
                f"{self.user} is logged in already",
                remedy="open a new connection for another login",
            )
        self._server = new_server()
        self.expects_token = version == 0

    def prepare(self, token: bytes) -> Awaitable[None] | None:
        """Returns what to wait for before `step`; None if there is nothing."""
        prepare = None if self._server is None else self._server.prepare
        return None if prepare is None else prepare(token)

    def step(self, token: bytes) -> bytes:
        """Returns the challenge for the client's next token; raises KafkaError if it is refused."""
        if self._server is None:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate must follow a SaslHandshake"
            )
        server = self._server
        try:
            self._check_mechanism(server)
            challenge = server.step(token)
            if server.done:
                self._complete(server)
        except KafkaError as error:
            claimed = server.claimed_name if isinstance(server, ClaimsName) else None
            self._on_failure(server.mechanism, claimed or "", error)
            self._is_refused = True
            self._server = None
            self.user = None
            raise
        return challenge

    def _check_mechanism(self, server: SaslServer) -> None:
        """Raises KafkaError if a login is renewed with another mechanism (KIP-368)."""
        if self._mechanism not in (None, server.mechanism):
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"a login with {self._mechanism} cannot be renewed with {server.mechanism}",
                remedy="open a new connection",
            )

    def _complete(self, server: SaslServer) -> None:
        self._server = None
        self.expects_token = False
        name = server.principal_name
        if self.user not in (None, name):
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"the connection belongs to {self.user}: {name} needs one of its own",
            )
        self.user = name
        self._mechanism = server.mechanism
        self.token_id = server.token_id if isinstance(server, AcceptsTokens) else None
        lifetimes = [self._max_reauth_ms(server.mechanism)]
        lifetimes = [lifetime for lifetime in lifetimes if lifetime > 0]
        if server.expires_ms is not None:
            lifetimes.append(max(server.expires_ms - self._clock.now_ms(), 0))
        self._lifetime_ms = min(lifetimes, default=0)
        self._expires_ms = self._clock.monotonic_ms() + self._lifetime_ms if lifetimes else None
        self._on_login(name, server.mechanism)

    def step_unframed(self, token: bytes) -> bytes:
        """Returns the challenge, with its length, for a token in a frame of its own.

        Raises ProtocolError if it is refused: such a client cannot receive an error.
        """
        try:
            challenge = self.step(token)
        except KafkaError as error:
            raise ProtocolError(f"login refused: {error.message}") from error
        return _LENGTH.pack(len(challenge)) + challenge

    @property
    def lifetime_ms(self) -> int:
        """How long the login is valid; 0 means permanently."""
        return self._lifetime_ms


def receive_unframed(
    connection: Connection, authenticator: SaslServerAuthenticator, token: bytes
) -> Coroutine[Any, Any, None] | None:
    """Responds to a token in a frame of its own. Returns the work to start if it has to wait.

    Raises ProtocolError if the token is refused.
    """
    waiting = authenticator.prepare(token)
    response = connection.begin_response()
    if waiting is None:
        response.send([authenticator.step_unframed(token)])
        return None
    connection.hold()
    return _respond_later(waiting, connection, response, authenticator, token)


async def _respond_later(
    waiting: Awaitable[None],
    connection: Connection,
    response: PendingResponse,
    authenticator: SaslServerAuthenticator,
    token: bytes,
) -> None:
    try:
        await waiting
        response.send([authenticator.step_unframed(token)])
    except ProtocolError as error:
        connection.close(error.message)
    finally:
        connection.release()
