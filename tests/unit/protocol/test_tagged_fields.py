"""Unknown tagged fields are skipped at any position."""

import pytest

from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode, encode
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest

HEARTBEAT = HeartbeatRequest("g", 1, "m", None)
UNKNOWN = bytes([2, 7, 3, 1, 2, 3, 0x80, 0x01, 0])  # tag 7 with three bytes, tag 128 with none
MANY_UNKNOWN = b"\x82\x01" + b"".join(
    (bytes([tag]) if tag < 128 else bytes([tag & 0x7F | 0x80, tag >> 7])) + b"\x01x"
    for tag in range(130)
)


@pytest.mark.parametrize("section", [UNKNOWN, MANY_UNKNOWN])
def test_unknown_fields_of_a_message_without_known_ones(section: bytes) -> None:
    encoded = encode(HEARTBEAT, 4)
    assert encoded.endswith(b"\x00")
    extended = encoded[:-1] + section
    assert decode(HeartbeatRequest, 4, extended) == (HEARTBEAT, len(extended))


def test_unknown_fields_between_known_ones() -> None:
    plain = ApiVersionsResponse(api_keys=[ApiVersion(0, 0, 1)])
    features = [SupportedFeatureKey("f", 0, 1)]
    encoded = encode(plain, 3)
    section = bytes([3, 9, 1, 0, 0, 8, 2, 2]) + b"f" + bytes([0, 0, 0, 1, 0, 0x55, 0])
    message, end = decode(ApiVersionsResponse, 3, encoded[:-1] + section)
    assert message == ApiVersionsResponse(
        api_keys=[ApiVersion(0, 0, 1)], supported_features=features
    )
    assert end == len(encoded) - 1 + len(section)


def test_unknown_fields_of_an_element() -> None:
    encoded = bytes([0, 0, 2, 0, 0, 0, 0, 0, 1]) + UNKNOWN + bytes([0, 0, 0, 0, 0])
    message, end = decode(ApiVersionsResponse, 3, encoded)
    assert message == ApiVersionsResponse(api_keys=[ApiVersion(0, 0, 1)])
    assert end == len(encoded)


def test_a_later_value_of_the_same_tag_counts() -> None:
    section = bytes([2, 1, 8]) + (5).to_bytes(8, "big") + bytes([1, 8]) + (6).to_bytes(8, "big")
    message, _ = decode(ApiVersionsResponse, 3, encode(ApiVersionsResponse(), 3)[:-1] + section)
    assert message.finalized_features_epoch == 6


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        (bytes([1, 7, 3, 1, 2]), "tagged field 7 claims 3 bytes, but 2 are left"),
        (bytes([1, 1, 9]) + bytes(9), "tag 1 is 8 bytes long, but claims 9"),
        (bytes([1, 1, 7]) + bytes(8), "tag 1 is 8 bytes long, but claims 7"),
        (bytes([2, 7, 0]), "incomplete"),
        (b"\xff\xff\xff\xff\x0f", "incomplete"),
        (b"\xff\xff\xff\xff\x1f", "does not fit in 32 bits"),
        (b"\x80\x80\x80\x80\x80\x01", "longer than 5 bytes"),
    ],
)
def test_bad_sections(section: bytes, complaint: str) -> None:
    encoded = encode(ApiVersionsResponse(), 3)[:-1] + section
    with pytest.raises(ProtocolError, match=complaint):
        decode(ApiVersionsResponse, 3, encoded)
