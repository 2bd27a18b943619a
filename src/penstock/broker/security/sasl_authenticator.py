"""The SASL log-in of one connection: which mechanism, how far, and what is allowed meanwhile (X2).

SaslHandshake version 1 leads to SaslAuthenticate requests, version 0 to bare tokens. A log-in may
be repeated on the same connection and must be where `connections.max.reauth.ms` says so.
"""

import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from penstock.core.errors import ErrorCode, KafkaError, ProtocolError
from penstock.protocol.api_key import ApiKey
from penstock.security.sasl import SaslServer

_LENGTH = struct.Struct(">i")

_BEFORE = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

NewServer: TypeAlias = Callable[[], SaslServer]


class SaslServerAuthenticator:
    """`finished` is told the name of the user, each time a log-in has succeeded."""

    def __init__(
        self,
        mechanisms: Mapping[str, NewServer],
        finished: Callable[[str], None],
        *,
        now_ms: Callable[[], int],
        max_reauth_ms: Callable[[str], int] = lambda mechanism: 0,
    ) -> None:
        """`max_reauth_ms` says for how long a log-in with a mechanism holds; 0 for ever."""
        self.mechanisms = mechanisms
        self.expects_token = False
        """The next frame is a bare token of the mechanism, no request."""
        self.user: str | None = None
        self._finished = finished
        self._now_ms = now_ms
        self._max_reauth_ms = max_reauth_ms
        self._lifetime_ms = 0
        self._expires_ms: int | None = None
        self._server: SaslServer | None = None
        self._refused = False

    def allows(self, api_key: ApiKey) -> bool:
        """Whether a request may be served as far as the log-in has come.

        ProtocolError where it has come too late: the log-in should have been renewed before.
        """
        if api_key in _BEFORE:
            return True
        if self._expires_ms is not None and self._now_ms() >= self._expires_ms:
            raise ProtocolError(
                f"the log-in of {self.user} is over after connections.max.reauth.ms="
                f"{self._lifetime_ms}: the client must log in again, on a new connection if it "
                f"cannot on this one"
            )
        return self.user is not None

    def handshake(self, version: int, mechanism: str) -> None:
        """The client chooses; KafkaError where the mechanism is not offered."""
        new_server = self.mechanisms.get(mechanism)
        if new_server is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"this listener offers {', '.join(sorted(self.mechanisms))}, not {mechanism}: set "
                f"sasl.mechanism in the client",
            )
        if self._refused:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, "the log-in was refused: try on a new connection"
            )
        if self.user is not None and not self._lifetime_ms:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, f"{self.user} is logged in, and need not be again"
            )
        self._server = new_server()
        self.expects_token = version == 0

    def step(self, token: bytes) -> bytes:
        """The next token of the client; returns the answer. KafkaError where it is refused."""
        if self._server is None:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate must follow a SaslHandshake"
            )
        server = self._server
        try:
            challenge = server.step(token)
            if server.done:
                self._succeeded(server)
        except KafkaError:
            self._refused = True
            self._server = None
            self.user = None
            raise
        return challenge

    def _succeeded(self, server: SaslServer) -> None:
        self._server = None
        self.expects_token = False
        name = server.principal_name
        if self.user not in (None, name):
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"the connection belongs to {self.user}: {name} needs one of its own",
            )
        self.user = name
        self._lifetime_ms = max(self._max_reauth_ms(server.mechanism), 0)
        if self._lifetime_ms:
            self._expires_ms = self._now_ms() + self._lifetime_ms
        self._finished(name)

    def step_unframed(self, token: memoryview) -> bytes:
        """As `step`, for a token that came as a frame of its own: the answer with its length.

        There is no way to tell such a client why it is refused: a ProtocolError ends it.
        """
        try:
            challenge = self.step(bytes(token))
        except KafkaError as error:
            raise ProtocolError(f"log-in refused: {error.message}") from error
        return _LENGTH.pack(len(challenge)) + challenge

    @property
    def lifetime_ms(self) -> int:
        """How long the log-in holds; 0 for ever."""
        return self._lifetime_ms
