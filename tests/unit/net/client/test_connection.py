"""A connection is opened step by step: versions, login, then requests in their order."""

import struct
from functools import partial
from typing import cast

import pytest

from penstock.client.errors import AuthenticationError
from penstock.core.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from penstock.net.client.connection import ClientConnection, State
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_request_header, encode_response
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.header import RequestHeader
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeResponse

RANGES = [
    ApiVersion(ApiKey.API_VERSIONS, 0, 4),
    ApiVersion(ApiKey.METADATA, 2, 9),
    ApiVersion(ApiKey.SASL_HANDSHAKE, 0, 1),
    ApiVersion(ApiKey.SASL_AUTHENTICATE, 0, 2),
]


class Password:
    """A login in two steps that is content with `yes`."""

    mechanism = "TWO-STEPS"
    prepare = None
    user = "ann"

    def initial_response(self) -> bytes:
        return b"me"

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        return b"secret" if challenge == b"who?" else None


def header_of(parts: list[Part]) -> RequestHeader:
    frame = b"".join(cast("list[bytes]", parts))[4:]
    return decode_request_header(frame)[0]


def respond(connection: ClientConnection, response: Message, parts: list[Part]) -> list[Part]:
    """Passes the broker's response to the last request to the connection."""
    header = header_of(parts)
    encoded = encode_response(response, header.request_api_version, header.correlation_id)
    return connection.receive(memoryview(b"".join(cast("list[bytes]", encoded))[4:]))


def opened() -> ClientConnection:
    connection = ClientConnection("me", None, "broker:1")
    assert respond(connection, ApiVersionsResponse(api_keys=RANGES), connection.open()) == []
    assert connection.state is State.READY
    return connection


def test_the_first_request_is_api_versions_with_the_name_of_the_client() -> None:
    connection = ClientConnection("me", None, "broker:1")
    header = header_of(connection.open())
    assert header.request_api_key == ApiKey.API_VERSIONS
    assert header.client_id == "me"


def test_an_old_broker_gets_a_second_request_in_a_version_it_supports() -> None:
    """A broker that lacks the version of ApiVersions responds in version 0, with its ranges."""
    connection = ClientConnection("me", None, "broker:1")
    header = header_of(connection.open())
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 2)],
    )
    encoded = encode_response(refusal, 0, header.correlation_id)
    again = connection.receive(memoryview(b"".join(cast("list[bytes]", encoded))[4:]))
    assert header_of(again).request_api_version == 2
    respond(connection, ApiVersionsResponse(api_keys=RANGES), again)
    assert connection.state is State.READY


def test_the_newest_common_version_is_used() -> None:
    connection = opened()
    assert connection.version_for(ApiKey.METADATA) == 9
    assert connection.version_for(ApiKey.METADATA, 0, 5) == 5


@pytest.mark.parametrize(
    ("key", "low", "message"),
    [
        (ApiKey.METADATA, 10, "supports METADATA in versions 2 to 9, this call needs one of 10 to"),
        (ApiKey.CREATE_TOPICS, 0, "does not support CREATE_TOPICS"),
    ],
)
def test_the_error_without_a_common_version_has_the_supported_ones(
    key: ApiKey, low: int, message: str
) -> None:
    """E4."""
    with pytest.raises(UnsupportedVersionError, match=message):
        opened().version_for(key, low)


def test_a_login_continues_until_both_sides_are_satisfied() -> None:
    connection = ClientConnection("me", Password(), "broker:1")
    parts = respond(connection, ApiVersionsResponse(api_keys=RANGES), connection.open())
    assert header_of(parts).request_api_key == ApiKey.SASL_HANDSHAKE
    parts = respond(connection, SaslHandshakeResponse(mechanisms=["TWO-STEPS"]), parts)
    assert b"me" in b"".join(cast("list[bytes]", parts))
    parts = respond(connection, SaslAuthenticateResponse(auth_bytes=b"who?"), parts)
    assert b"secret" in b"".join(cast("list[bytes]", parts))
    last = SaslAuthenticateResponse(auth_bytes=b"yes", session_lifetime_ms=5000)
    assert respond(connection, last, parts) == []
    assert connection.state is State.READY
    assert connection.session_lifetime_ms == 5000


def test_the_error_of_an_unsupported_mechanism_has_the_supported_ones() -> None:
    """E3."""
    connection = ClientConnection("me", Password(), "broker:1")
    parts = respond(connection, ApiVersionsResponse(api_keys=RANGES), connection.open())
    refusal = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"]
    )
    with pytest.raises(AuthenticationError, match="TWO-STEPS: it supports PLAIN"):
        respond(connection, refusal, parts)


def test_the_error_of_a_rejected_login_says_what_to_check() -> None:
    """E3."""
    connection = ClientConnection("me", Password(), "broker:1")
    parts = respond(connection, ApiVersionsResponse(api_keys=RANGES), connection.open())
    parts = respond(connection, SaslHandshakeResponse(mechanisms=["TWO-STEPS"]), parts)
    refusal = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user"
    )
    with pytest.raises(AuthenticationError, match=r"no such user.*check the user name"):
        respond(connection, refusal, parts)


def test_responses_are_matched_to_requests_in_order() -> None:
    connection = opened()
    responses: list[tuple[int, Message]] = []

    def record(number: int, response: Message) -> None:
        responses.append((number, response))

    sent = [
        connection.send(MetadataRequest(), 9, MetadataResponse, partial(record, n))
        for n in range(3)
    ]
    for n, parts in enumerate(sent):
        respond(connection, MetadataResponse(cluster_id=str(n)), parts)
    assert [(n, cast("MetadataResponse", response).cluster_id) for n, response in responses] == [
        (0, "0"),
        (1, "1"),
        (2, "2"),
    ]


def test_a_response_out_of_order_is_an_error() -> None:
    connection = opened()
    connection.send(MetadataRequest(), 9, MetadataResponse, lambda _: None)
    second = connection.send(MetadataRequest(), 9, MetadataResponse, lambda _: None)
    with pytest.raises(ProtocolError, match="instead of"):
        respond(connection, MetadataResponse(), second)


def test_a_response_without_a_request_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="response to no request"):
        opened().receive(memoryview(struct.pack(">i", 1)))


def test_the_error_of_an_unreadable_response_has_the_broker() -> None:
    connection = opened()
    parts = connection.send(MetadataRequest(), 9, MetadataResponse, lambda _: None)
    frame = struct.pack(">i", header_of(parts).correlation_id) + b"\x00\xff\xff"
    with pytest.raises(ProtocolError, match="response of broker broker:1 cannot be read"):
        connection.receive(memoryview(frame))


def test_the_first_version_is_supported_by_this_client() -> None:
    header = header_of(ClientConnection("me", None, "broker:1").open())
    own = api(ApiKey.API_VERSIONS)
    assert own.min_version <= header.request_api_version <= own.max_version
