"""A connection to a broker without its socket: bytes of requests out, responses in, no I/O.

A connection opens with ApiVersions and logs in if the listener demands it; then it is READY for
requests. `ClientConnection.open` and `receive` return the bytes to send next. Responses arrive in
the order of the requests.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from penstock import __version__
from penstock.core.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError
from penstock.net.client.errors import AuthenticationError, error_code_of, error_of
from penstock.net.client.sasl.client import SaslClient
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

_SOFTWARE_NAME: Final = "penstock"
_FIRST_VERSION: Final = 4
"""The version of the first ApiVersions request; older brokers respond in version 0."""


_PASSWORD_REMEDY: Final = (
    "check the user name and the password, and that the broker knows this user"
)
_REMEDIES: Final = {
    "OAUTHBEARER": "the broker's log says why; check the issuer, the audience and the expiry of "
    "the token, and that the broker has the issuer's keys",
    "GSSAPI": "the broker's log says why; check its keytab, the clocks, and "
    "sasl.kerberos.principal.to.local.rules",
}


class State(Enum):
    VERSIONS = auto()
    HANDSHAKE = auto()
    LOGIN = auto()
    READY = auto()


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The versions of each API that a broker supports, and the cluster's finalized features."""

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    def newest(self, key: ApiKey, low: int = 0, high: int | None = None) -> int | None:
        """Returns the newest version between `low` and `high` that both sides support, or None."""
        supported = self.ranges.get(key)
        if supported is None:
            return None
        own = api(key)
        newest = min(supported[1], own.max_version if high is None else min(high, own.max_version))
        return newest if newest >= max(supported[0], own.min_version, low) else None


@dataclass(slots=True)
class InFlightRequest:
    """A request that was sent and has no response yet."""

    correlation_id: int
    response_type: type[Message]
    version: int
    on_response: Callable[[Message], None]


class ClientConnection:
    """The protocol of one connection. Unusable after an exception; close it then."""

    def __init__(self, client_id: str, login: SaslClient | None, address: str) -> None:
        self.state = State.VERSIONS
        self.api_versions = NodeApiVersions({}, {})
        self.session_lifetime_ms = 0
        """How long the login is valid; 0 means permanently."""
        self.in_flight: deque[InFlightRequest] = deque()
        self._client_id = client_id
        self._login = login
        self._address = address
        self._correlation_id = 0

    @property
    def has_login(self) -> bool:
        return self._login is not None

    def open(self) -> list[Part]:
        """Returns the first bytes to send."""
        return self._request_versions(_FIRST_VERSION)

    def version_for(self, key: ApiKey, low: int = 0, high: int | None = None) -> int:
        """Returns the version of an API to use.

        Raises UnsupportedVersionError, with the versions that the broker supports, if none fits.
        """
        version = self.api_versions.newest(key, low, high)
        if version is not None:
            return version
        supported = self.api_versions.ranges.get(key)
        if supported is None:
            raise UnsupportedVersionError(
                f"broker {self._address} does not support {key.name}: it is too old for this call, "
                "or has it switched off"
            )
        own = api(key)
        needed = f"{max(low, own.min_version)} to {own.max_version if high is None else high}"
        raise UnsupportedVersionError(
            f"broker {self._address} supports {key.name} in versions {supported[0]} to "
            f"{supported[1]}, this call needs one of {needed}",
            remedy="use a client or a broker of another version",
        )

    def send(
        self,
        message: Message,
        version: int,
        response_type: type[Message],
        on_response: Callable[[Message], None],
        body: list[Part] | None = None,
    ) -> list[Part]:
        """Returns the bytes of a request. `receive` calls `on_response` with its response.

        `body` is the message if it has been encoded already.
        """
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(message, version, correlation_id, self._client_id, body)
        self.in_flight.append(InFlightRequest(correlation_id, response_type, version, on_response))
        return parts

    def receive(self, frame: memoryview) -> list[Part]:
        """Processes a response. Returns the bytes to send next while the connection is opening.

        Raises ProtocolError when the frame is not the next response, AuthenticationError when the
        login fails.
        """
        if not self.in_flight:
            raise ProtocolError(f"broker {self._address} sent a response to no request")
        request = self.in_flight.popleft()
        version = request.version
        if request.response_type is ApiVersionsResponse and _rejects_version(frame):
            # A broker that does not know the version of this request responds in version 0.
            version = 0
        try:
            header, message = decode_response(request.response_type, version, frame)
        except ProtocolError as error:
            raise ProtocolError(
                f"the response of broker {self._address} cannot be read: {error.message}"
            ) from error
        if header.correlation_id != request.correlation_id:
            raise ProtocolError(
                f"broker {self._address} responded to request {header.correlation_id} "
                f"instead of {request.correlation_id}"
            )
        if self.state is State.READY:
            request.on_response(message)
            return []
        return self._continue_opening(message, request.version)

    def _continue_opening(self, message: Message, version: int) -> list[Part]:
        if isinstance(message, ApiVersionsResponse):
            return self._on_versions(message, version)
        if isinstance(message, SaslHandshakeResponse):
            return self._on_handshake(message)
        assert isinstance(message, SaslAuthenticateResponse)
        return self._on_challenge(message)

    def _request(self, message: Message, version: int, response_type: type[Message]) -> list[Part]:
        return self.send(message, version, response_type, _ignore)

    def _request_versions(self, version: int) -> list[Part]:
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE_NAME, client_software_version=__version__
        )
        return self._request(request, version, ApiVersionsResponse)

    def _on_versions(self, message: ApiVersionsResponse, version: int) -> list[Part]:
        if message.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            ranges = {entry.api_key: entry.max_version for entry in message.api_keys}
            newest = min(ranges.get(ApiKey.API_VERSIONS, 0), _FIRST_VERSION)
            return self._request_versions(newest if newest < version else 0)
        if message.error_code:
            raise error_of(
                message.error_code,
                f"broker {self._address} does not report which versions it supports (E4)",
            )
        self.api_versions = NodeApiVersions(
            {entry.api_key: (entry.min_version, entry.max_version) for entry in message.api_keys},
            {entry.name: entry.max_version_level for entry in message.finalized_features},
        )
        if self._login is None:
            self.state = State.READY
            return []
        self.state = State.HANDSHAKE
        version = self.version_for(ApiKey.SASL_HANDSHAKE, 1)
        return self._request(
            SaslHandshakeRequest(mechanism=self._login.mechanism), version, SaslHandshakeResponse
        )

    def _on_handshake(self, message: SaslHandshakeResponse) -> list[Part]:
        assert self._login is not None
        if message.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                f"the listener {self._address} expects no login",
                ErrorCode.ILLEGAL_SASL_STATE,
                remedy="set `security_protocol` to PLAINTEXT or SSL, or use the port of a SASL "
                "listener",
            )
        if message.error_code:
            offered = ", ".join(message.mechanisms) or "none"
            raise AuthenticationError(
                f"broker {self._address} does not accept `sasl_mechanism`={self._login.mechanism}",
                error_code_of(message.error_code, ErrorCode.SASL_AUTHENTICATION_FAILED),
                remedy=f"it supports {offered}",
            )
        self.state = State.LOGIN
        return self._send_token(self._login.initial_response())

    def _send_token(self, token: bytes) -> list[Part]:
        version = self.version_for(ApiKey.SASL_AUTHENTICATE)
        return self._request(
            SaslAuthenticateRequest(auth_bytes=token), version, SaslAuthenticateResponse
        )

    def _on_challenge(self, message: SaslAuthenticateResponse) -> list[Part]:
        assert self._login is not None
        if message.error_code:
            detail = f" ({message.error_message})" if message.error_message else ""
            raise AuthenticationError(
                f"the login of user {self._login.user} at broker {self._address} with "
                f"{self._login.mechanism} failed{detail}",
                error_code_of(message.error_code, ErrorCode.SASL_AUTHENTICATION_FAILED),
                remedy=_REMEDIES.get(self._login.mechanism, _PASSWORD_REMEDY),
            )
        self.session_lifetime_ms = message.session_lifetime_ms
        token = self._login.evaluate_challenge(message.auth_bytes)
        if token is None:
            self.state = State.READY
            return []
        return self._send_token(token)


def _rejects_version(frame: memoryview) -> bool:
    """Whether the error code, directly after the correlation id, is UNSUPPORTED_VERSION."""
    return frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _ignore(message: Message) -> None:
    """Responses during opening are processed by `receive` itself."""


def is_fatal(error: KafkaError) -> bool:
    """Whether connecting again is pointless until a setting or the broker changes."""
    return isinstance(error, AuthenticationError | UnsupportedVersionError)
