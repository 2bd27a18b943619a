"""Frames: a stream cut into messages, and messages with their headers on."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from penstock.core.errors import ProtocolError, UnsupportedVersionError
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decode
from penstock.protocol.fields import Message
from penstock.protocol.frames import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from penstock.protocol.messages.header import RequestHeader, ResponseHeader
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.stored.offsets import OffsetCommitKey


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def joined(parts: Sequence[object]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes))


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_is_decoded_as_it_was_encoded(version: int) -> None:
    request = HeartbeatRequest("g", 1, "m")
    frame = joined(encode_request(request, version, 77, "me"))[4:]
    header, position = decode_request_header(frame)
    assert header == RequestHeader(ApiKey.HEARTBEAT, version, 77, "me")
    assert decode(HeartbeatRequest, version, frame, position) == (request, len(frame))


@pytest.mark.parametrize("version", [3, 4])
def test_a_response_is_decoded_as_it_was_encoded(version: int) -> None:
    response = HeartbeatResponse(throttle_time_ms=5, error_code=27)
    frame = joined(encode_response(response, version, 77))[4:]
    assert decode_response(HeartbeatResponse, version, frame) == (ResponseHeader(77), response)


def test_headers_byte_by_byte() -> None:
    """The two exceptions: ControlledShutdown 0 has no client id, ApiVersions no tagged fields."""
    shutdown = joined(encode_request(ControlledShutdownRequest(broker_id=1), 0, 2, "unsaid"))
    assert shutdown == bytes.fromhex("0000000c 0007 0000 00000002 00000001")
    versions = joined(encode_response(ApiVersionsResponse(), 3, 2))
    assert versions == bytes.fromhex("0000000c 00000002 0000 01 00000000 00")
    heartbeat = joined(encode_response(HeartbeatResponse(), 4, 2))
    assert heartbeat == bytes.fromhex("0000000c 00000002 00 00000000 0000 00")


def test_the_header_of_an_unknown_version_can_be_read() -> None:
    """E4: the response can name the supported versions."""
    frame = bytes.fromhex("0012 0063 00000005 0002 6d65 00 ffff")
    assert decode_request_header(frame) == (RequestHeader(18, 99, 5, "me"), 13)


@dataclass(frozen=True)
class FileRange:
    size: int


def test_the_length_includes_file_ranges() -> None:
    gap = FileRange(5000)
    data = FetchPartitionData(0, records=gap, aborted_transactions=None)
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[data])])
    parts = encode_response(response, 12, 9)
    assert parts[1] is gap
    first, last = parts[0], parts[2]
    assert isinstance(first, bytes)
    assert isinstance(last, bytes)
    assert int.from_bytes(first[:4], "big") == len(first) - 4 + 5000 + len(last)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", bytes(9)])
def test_a_request_header_that_is_cut_off(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(frame)


@pytest.mark.parametrize("key", [95, 999, -1])
def test_a_key_that_kafka_does_not_have(key: int) -> None:
    frame = key.to_bytes(2, "big", signed=True) + bytes(10)
    with pytest.raises(UnsupportedVersionError, match=f"no API with key {key}"):
        decode_request_header(frame)


def test_a_response_that_is_cut_off() -> None:
    with pytest.raises(ProtocolError):
        decode_response(HeartbeatResponse, 4, b"\0\0\0")


@pytest.mark.parametrize("message", [RequestHeader(), OffsetCommitKey()])
def test_only_requests_and_responses_are_framed(message: Message) -> None:
    with pytest.raises(TypeError, match="is neither a request nor a response"):
        encode_request(message, 0, 1, None)


def test_a_client_without_a_name() -> None:
    parts = encode_request(ApiVersionsRequest(), 0, 1, None)
    assert joined(parts) == bytes.fromhex("0000000a 0012 0000 00000001 ffff")
