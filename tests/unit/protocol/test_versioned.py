"""Messages that say their own version, and record keys that say their type."""

import pytest

from penstock.core.errors import ProtocolError, UnsupportedVersionError
from penstock.protocol.fields import Kind
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.stored.classic_group import GroupMetadataKey
from penstock.protocol.stored.control import EndTxnMarker
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue
from penstock.protocol.versioned import (
    decode_record_key,
    decode_versioned,
    encode_record_key,
    encode_versioned,
    read_prefix,
)
from tests.support.protocol.message_samples import message_classes

# Record types of Kafka's own topics, as its brokers write them.
RECORD_TYPES = {
    "LegacyOffsetCommit": 0,
    "OffsetCommit": 1,
    "GroupMetadata": 2,
    "ConsumerGroupMetadata": 3,
    "ConsumerGroupPartitionMetadata": 4,
    "ConsumerGroupMemberMetadata": 5,
    "ConsumerGroupTargetAssignmentMetadata": 6,
    "ConsumerGroupTargetAssignmentMember": 7,
    "ConsumerGroupCurrentMemberAssignment": 8,
    "ShareGroupMemberMetadata": 10,
    "ShareGroupMetadata": 11,
    "ShareGroupTargetAssignmentMetadata": 12,
    "ShareGroupTargetAssignmentMember": 13,
    "ShareGroupCurrentMemberAssignment": 14,
    "ShareGroupStatePartitionMetadata": 15,
    "ConsumerGroupRegularExpression": 16,
    "StreamsGroupMetadata": 17,
    "StreamsGroupMemberMetadata": 19,
    "StreamsGroupTargetAssignmentMetadata": 20,
    "StreamsGroupTargetAssignmentMember": 21,
    "StreamsGroupCurrentMemberAssignment": 22,
    "StreamsGroupTopology": 23,
    "TransactionLog": 0,
    "ShareSnapshot": 0,
    "ShareUpdate": 1,
}


@pytest.mark.parametrize(
    ("kind", "suffix"), [(Kind.RECORD_KEY, "Key"), (Kind.RECORD_VALUE, "Value")]
)
def test_every_record_type_has_its_key_and_value(kind: Kind, suffix: str) -> None:
    result = {cls.__name__: cls.INFO.key for cls in message_classes() if cls.INFO.kind is kind}
    assert result == {name + suffix: number for name, number in RECORD_TYPES.items()}


def test_value_there_and_back() -> None:
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=3)
    for version in range(5):
        encoded = encode_versioned(value, version)
        assert encoded[:2] == bytes([0, version])
        assert decode_versioned(OffsetCommitValue, encoded) == (value, version)


def test_marker_byte_by_byte() -> None:
    """P4: the value of a commit or abort marker."""
    assert encode_versioned(EndTxnMarker(5), 0) == bytes.fromhex("0000 00000005")


def test_subscription_byte_by_byte() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], user_data=None)
    encoded = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000")
    assert encode_versioned(subscription, 1) == encoded
    assert decode_versioned(ConsumerProtocolSubscription, encoded) == (subscription, 1)


def test_key_there_and_back() -> None:
    key = OffsetCommitKey("g", "t", 3)
    encoded = encode_record_key(key)
    assert encoded == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert read_prefix(encoded) == 1
    assert decode_record_key(OffsetCommitKey, encoded) == key


def test_key_of_another_type() -> None:
    encoded = encode_record_key(GroupMetadataKey("g"))
    with pytest.raises(ProtocolError, match="a record of type 2 is not a OffsetCommitKey"):
        decode_record_key(OffsetCommitKey, encoded)


def test_only_keys_have_a_type() -> None:
    with pytest.raises(TypeError, match="OffsetCommitValue is not the key of a record"):
        encode_record_key(OffsetCommitValue())


def test_a_version_from_the_future() -> None:
    with pytest.raises(UnsupportedVersionError, match="has versions 0-4, not 5"):
        decode_versioned(OffsetCommitValue, b"\0\5" + bytes(30))


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_no_room_for_a_version(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="too few for a version"):
        decode_versioned(OffsetCommitValue, data)
