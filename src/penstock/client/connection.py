"""A client's connection without its socket: which bytes to send, and what came back.

A connection opens with ApiVersions, then logs in where the listener wants it, then serves requests.
`ClientConnection.open` and `receive` say what to send next; requests are answered in their order.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from penstock import __version__
from penstock.client.errors import AuthenticationError, error_of
from penstock.core.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response, encode_request
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_SOFTWARE: Final = "penstock"
_FIRST_VERSION: Final = 4
"""Of ApiVersions, the newest that every field we need has; older brokers answer in version 0."""


class Login(Protocol):
    """A SASL mechanism, from the client's side."""

    @property
    def mechanism(self) -> str: ...

    @property
    def user(self) -> str: ...

    def first(self) -> bytes:
        """What the client says first."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """What it answers; None once it is content. AuthenticationError where it is not."""
        ...


class State(Enum):
    VERSIONS = auto()
    HANDSHAKE = auto()
    LOGIN = auto()
    READY = auto()


@dataclass(frozen=True, slots=True)
class ServedVersions:
    """What a broker serves: the versions of each API, and its finalized features."""

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]
    features_epoch: int
    supported_features: Mapping[str, tuple[int, int]]

    def newest(self, key: ApiKey, low: int = 0, high: int | None = None) -> int | None:
        """The newest version that both sides have, between `low` and `high`; None without one."""
        served = self.ranges.get(key)
        if served is None:
            return None
        known = api(key)
        best = min(served[1], known.max_version if high is None else min(high, known.max_version))
        return best if best >= max(served[0], known.min_version, low) else None


@dataclass(slots=True)
class Pending:
    """A request that has been sent and not been answered."""

    correlation_id: int
    answer: type[Message]
    version: int
    done: Callable[[Message], None]


class ClientConnection:
    """What one connection says and hears. After an exception it is of no more use.

    `receive` takes a frame and returns what to send next; answers to `send` go to its `done`.
    """

    def __init__(self, client_id: str, login: Login | None, address: str) -> None:
        self.state = State.VERSIONS
        self.served = ServedVersions({}, {}, -1, {})
        self.session_lifetime_ms = 0
        """How long the login is good for; 0 is for ever."""
        self.pending: deque[Pending] = deque()
        self._client_id = client_id
        self._login = login
        self._address = address
        self._correlation_id = 0

    @property
    def logs_in(self) -> bool:
        return self._login is not None

    def open(self) -> list[Part]:
        """The first bytes."""
        return self._ask_versions(_FIRST_VERSION)

    def version_for(self, key: ApiKey, low: int = 0, high: int | None = None) -> int:
        """The version to use; UnsupportedVersionError says what this broker has instead (E4)."""
        version = self.served.newest(key, low, high)
        if version is not None:
            return version
        served = self.served.ranges.get(key)
        if served is None:
            raise UnsupportedVersionError(
                f"broker {self._address} does not serve {key.name}: it is too old for this, or "
                "has it switched off"
            )
        known = api(key)
        ours = f"{max(low, known.min_version)} to {known.max_version if high is None else high}"
        raise UnsupportedVersionError(
            f"broker {self._address} serves {key.name} in versions {served[0]} to {served[1]}, "
            f"this needs one of {ours}: use a client or a broker of another version"
        )

    def send(
        self, message: Message, version: int, answer: type[Message], done: Callable[[Message], None]
    ) -> list[Part]:
        """The bytes of a request; `done` gets its answer. The connection must be READY."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(message, version, correlation_id, self._client_id)
        self.pending.append(Pending(correlation_id, answer, version, done))
        return parts

    def receive(self, frame: memoryview) -> list[Part]:
        """Take an answer. Returns what is to be sent next while the connection is being opened."""
        if not self.pending:
            raise ProtocolError(f"broker {self._address} sent an answer to no request")
        pending = self.pending.popleft()
        version = pending.version
        if pending.answer is ApiVersionsResponse and _refuses_version(frame):
            # A broker that does not know the version of this request answers in version 0.
            version = 0
        try:
            header, message = decode_response(pending.answer, version, frame)
        except ProtocolError as error:
            raise ProtocolError(
                f"the answer of broker {self._address} cannot be read: {error.message}"
            ) from error
        if header.correlation_id != pending.correlation_id:
            raise ProtocolError(
                f"broker {self._address} answered request {header.correlation_id} "
                f"instead of {pending.correlation_id}"
            )
        if self.state is State.READY:
            pending.done(message)
            return []
        return self._opening(message, pending.version)

    def _opening(self, message: Message, version: int) -> list[Part]:
        if isinstance(message, ApiVersionsResponse):
            return self._on_versions(message, version)
        if isinstance(message, SaslHandshakeResponse):
            return self._on_handshake(message)
        assert isinstance(message, SaslAuthenticateResponse)
        return self._on_challenge(message)

    def _ask(self, message: Message, version: int, answer: type[Message]) -> list[Part]:
        return self.send(message, version, answer, _nobody)

    def _ask_versions(self, version: int) -> list[Part]:
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=__version__
        )
        return self._ask(request, version, ApiVersionsResponse)

    def _on_versions(self, message: ApiVersionsResponse, version: int) -> list[Part]:
        if message.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            ranges = {each.api_key: each.max_version for each in message.api_keys}
            newest = min(ranges.get(ApiKey.API_VERSIONS, 0), _FIRST_VERSION)
            return self._ask_versions(newest if newest < version else 0)
        if message.error_code:
            raise error_of(
                message.error_code,
                f"broker {self._address} does not say which versions it serves (E4)",
            )
        self.served = ServedVersions(
            {each.api_key: (each.min_version, each.max_version) for each in message.api_keys},
            {each.name: each.max_version_level for each in message.finalized_features},
            message.finalized_features_epoch,
            {
                each.name: (each.min_version, each.max_version)
                for each in message.supported_features
            },
        )
        if self._login is None:
            self.state = State.READY
            return []
        self.state = State.HANDSHAKE
        version = self.version_for(ApiKey.SASL_HANDSHAKE, 1)
        return self._ask(
            SaslHandshakeRequest(mechanism=self._login.mechanism), version, SaslHandshakeResponse
        )

    def _on_handshake(self, message: SaslHandshakeResponse) -> list[Part]:
        assert self._login is not None
        if message.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                f"the listener {self._address} wants no login: set security_protocol to PLAINTEXT "
                "or SSL, or use the port of a SASL listener",
                ErrorCode.ILLEGAL_SASL_STATE,
            )
        if message.error_code:
            offered = ", ".join(message.mechanisms) or "none"
            raise AuthenticationError(
                f"broker {self._address} does not accept sasl_mechanism={self._login.mechanism}: "
                f"it has {offered}",
                _code(message.error_code),
            )
        self.state = State.LOGIN
        return self._say(self._login.first())

    def _say(self, token: bytes) -> list[Part]:
        version = self.version_for(ApiKey.SASL_AUTHENTICATE)
        return self._ask(
            SaslAuthenticateRequest(auth_bytes=token), version, SaslAuthenticateResponse
        )

    def _on_challenge(self, message: SaslAuthenticateResponse) -> list[Part]:
        assert self._login is not None
        if message.error_code:
            said = f" ({message.error_message})" if message.error_message else ""
            raise AuthenticationError(
                f"the login of user {self._login.user} at broker {self._address} with "
                f"{self._login.mechanism} failed{said}: check the user name and the password, and "
                "that the broker knows this user",
                _code(message.error_code),
            )
        self.session_lifetime_ms = message.session_lifetime_ms
        token = self._login.next(message.auth_bytes)
        if token is None:
            self.state = State.READY
            return []
        return self._say(token)


def _refuses_version(frame: memoryview) -> bool:
    """Whether the error code, right behind the correlation id, is UNSUPPORTED_VERSION."""
    return frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _nobody(message: Message) -> None:
    """Answers while a connection is being opened are the connection's own."""


def _code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.SASL_AUTHENTICATION_FAILED


def is_final(error: KafkaError) -> bool:
    """Whether connecting again makes no sense before somebody has changed something."""
    return isinstance(error, AuthenticationError | UnsupportedVersionError)
