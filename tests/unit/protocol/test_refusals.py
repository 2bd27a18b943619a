"""Invalid messages are refused by the encoder and the decoder, with helpful errors."""

import pytest

from penstock.core.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from penstock.protocol.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest


def fetch_topic(*partitions: FetchPartition) -> FetchTopic:
    return FetchTopic(partitions=[*partitions])


BAD_VALUES: list[tuple[Message, int, str]] = [
    (HeartbeatRequest(generation_id=2**31), 0, "generation_id is 2147483648, which does not fit"),
    (HeartbeatRequest(group_id=None), 4, "group_id is None, which this version does not allow"),  # type: ignore[arg-type]
    (HeartbeatRequest(group_id=b"g"), 4, "group_id is b'g', not str"),  # type: ignore[arg-type]
    (HeartbeatRequest(generation_id="1"), 4, "generation_id is '1', not int"),  # type: ignore[arg-type]
    (
        HeartbeatRequest(group_id="g" * 0x8000),
        4,
        "group_id is 32768 bytes long, but a string has at",
    ),
    (
        HeartbeatRequest(group_id="g" * 0x8000),
        3,
        "group_id is 32768 bytes long, but a string has at",
    ),
    (HeartbeatRequest(group_id="\ud800"), 4, "which has no UTF-8 form"),
    (
        FetchRequest(
            topics=[FetchTopic(), FetchTopic(partitions=[FetchPartition(fetch_offset=2**63)])]
        ),
        4,
        r"topics\[1\]\.partitions\[0\]\.fetch_offset is 9223372036854775808, which does not fit",
    ),
    (FetchRequest(topics=5), 4, "topics is 5, not a list"),  # type: ignore[arg-type]
    (FetchRequest(topics=["t"]), 4, r"topics\[0\] is 't', not FetchTopic"),  # type: ignore[list-item]
    (FetchRequest(topics=[FetchTopic(topic_id="t")]), 13, "topic_id is 't', not UUID"),  # type: ignore[arg-type]
    (MetadataRequest(topics=None), 0, "topics is None, which this version does not allow"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]),
        9,
        r"topics\[0\]\.name is None, which this version does not allow",
    ),
    (JoinGroupResponse(protocol_name=None), 6, "protocol_name is None, which this version"),
    (SaslAuthenticateRequest(auth_bytes="secret"), 2, "auth_bytes is 'secret', not bytes"),  # type: ignore[arg-type]
    (CreateTopicsRequest(topics=[CreatableTopic(replication_factor=2**15)]), 5, "fit in int16"),
]


@pytest.mark.parametrize(("message", "version", "complaint"), BAD_VALUES)
def test_values_that_do_not_fit(message: Message, version: int, complaint: str) -> None:
    title = f"{type(message).__name__} v{version}"
    with pytest.raises(ProtocolError, match=complaint) as caught:
        encode(message, version)
    assert title in caught.value.message


def test_a_long_value_is_not_shown_in_full() -> None:
    with pytest.raises(ProtocolError) as caught:
        encode(HeartbeatRequest(group_id=b"g" * 10_000), 4)  # type: ignore[arg-type]
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (HeartbeatRequest(group_instance_id="i"), 2, "group_instance_id is 'i'"),
        (CreateTopicsRequest(validate_only=True), 0, "validate_only is True"),
        (
            FetchRequest(topics=[fetch_topic(FetchPartition(last_fetched_epoch=4))]),
            11,
            "topics partitions last_fetched_epoch is 4",
        ),
        (FetchRequest(replica_id=3), 15, "replica_id is 3"),
        (FetchRequest(forgotten_topics_data=[FetchForgottenTopic()]), 6, "forgotten_topics_data"),
    ],
)
def test_fields_that_a_version_lacks(message: Message, version: int, complaint: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=complaint) as caught:
        encode(message, version)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "use a later version, or leave the field at its default" in caught.value.message


def test_a_field_that_may_be_ignored_is_dropped() -> None:
    """A rack is a hint: a version without it still carries the request."""
    request, _ = decode(FetchRequest, 10, encode(FetchRequest(rack_id="r1"), 10))
    assert request.rack_id == ""


@pytest.mark.parametrize("version", [-1, 5, 400])
def test_versions_that_a_message_does_not_have(version: int) -> None:
    """E4."""
    with pytest.raises(UnsupportedVersionError, match=f"has versions 0-4, not {version}"):
        encode(HeartbeatRequest(), version)
    with pytest.raises(UnsupportedVersionError, match=f"has versions 0-4, not {version}"):
        decode(HeartbeatRequest, version, b"")


BAD_BYTES: list[tuple[type[Message], int, bytes, str]] = [
    (HeartbeatRequest, 0, b"", "HeartbeatRequest v0 is incomplete: its 0 bytes end inside a field"),
    (HeartbeatRequest, 0, b"\xff\xff", "group_id is null or its length is negative"),
    (HeartbeatRequest, 4, b"\x00", "group_id is null or its length is negative"),
    (HeartbeatRequest, 0, b"\x00\x05g", "group_id claims 5 bytes, but 1 are left"),
    (HeartbeatRequest, 4, b"\x06g", "group_id claims 5 bytes, but 1 are left"),
    (HeartbeatRequest, 4, b"\x81\x80\x02" + bytes(40_000), "group_id is 32768 bytes long"),
    (HeartbeatRequest, 4, b"\x03\xc3\x28", "HeartbeatRequest v4 has a string that is not UTF-8"),
    (HeartbeatRequest, 0, b"\x00\x03\xed\xa0\x80", "has a string that is not UTF-8"),
    (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics is null or its count is negative"),
    (
        MetadataRequest,
        0,
        b"\x7f\xff\xff\xff",
        "topics claims 2147483647 elements in the remaining 0 bytes",
    ),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f", "topics claims 4294967294 elements"),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\x0f", "longer than 5 bytes"),
    (MetadataRequest, 9, b"\x80\x80\x80\x80\x10", "does not fit in 32 bits"),
    (DescribeTopicPartitionsRequest, 0, b"\x01\x00\x00\x00\x01\x01", "incomplete"),
    (
        AlterClientQuotasRequest,
        1,
        b"\x03\x01",
        "entries claims 2 elements in the remaining 1 bytes",
    ),
]


@pytest.mark.parametrize(("cls", "version", "data", "complaint"), BAD_BYTES)
def test_bad_bytes(cls: type[Message], version: int, data: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint) as caught:
        decode(cls, version, data)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_any_negative_length_of_a_nullable_field_is_null() -> None:
    """As in Apache Kafka."""
    request, end = decode(MetadataRequest, 1, b"\xff\xff\xff\x00")
    assert request.topics is None
    assert end == 4


def test_any_byte_but_zero_is_true() -> None:
    """As in the protocol's definition and in Apache Kafka."""
    request, _ = decode(MetadataRequest, 4, b"\xff\xff\xff\xff\x02")
    assert request.allow_auto_topic_creation is True


def test_the_longest_string() -> None:
    longest = ApiVersionsRequest("x" * 0x7FFF, "1")
    assert decode(ApiVersionsRequest, 3, encode(longest, 3))[0] == longest
