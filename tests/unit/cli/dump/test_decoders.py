"""Records of Kafka's own topics, made readable."""

from pathlib import Path
from uuid import UUID

import pytest

from penstock.cli.dump.decoders import (
    Decoder,
    decode_consumer_offsets,
    decode_share_group_state,
    decode_transaction_state,
)
from penstock.cli.dump.paths import DumpOptions
from penstock.cli.dump.segment import SegmentOptions
from penstock.core.errors import ProtocolError, UnsupportedVersionError
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.protocol.stored.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from penstock.protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue
from penstock.protocol.stored.share_state import ShareSnapshotKey, ShareSnapshotValue
from penstock.protocol.stored.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from penstock.protocol.versioned import encode_record_key, encode_versioned
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.storage.written_log import NOW_MS, dump_items, of_kind

TOPIC_ID = UUID(bytes=bytes(range(16)))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def record(key: Message, value: Message | None, version: int = 0) -> tuple[bytes, bytes | None]:
    return encode_record_key(key), None if value is None else encode_versioned(value, version)


def test_committed_offset() -> None:
    """C2: offsets under Kafka's names, those of the version alone."""
    key, value = record(
        OffsetCommitKey("readers", "orders", 3),
        OffsetCommitValue(offset=42, leader_epoch=5, metadata="m", commit_timestamp=NOW_MS),
        version=3,
    )
    assert decode_consumer_offsets(key, value) == (
        {"type": 1, "data": {"group": "readers", "topic": "orders", "partition": 3}},
        {
            "version": 3,
            "data": {
                "offset": 42,
                "leaderEpoch": 5,
                "metadata": "m",
                "commitTimestamp": NOW_MS,
            },
        },
    )


def test_a_deleted_offset() -> None:
    key, value = record(OffsetCommitKey("readers", "orders", 3), None)
    decoded_key, payload = decode_consumer_offsets(key, value)
    assert decoded_key == {
        "type": 1,
        "data": {"group": "readers", "topic": "orders", "partition": 3},
    }
    assert payload is None


def test_tagged_fields_are_shown_when_they_are_sent() -> None:
    key, value = record(
        OffsetCommitKey("g", "t", 0), OffsetCommitValue(offset=1, topic_id=TOPIC_ID), version=4
    )
    _, payload = decode_consumer_offsets(key, value)
    assert isinstance(payload, dict)
    assert isinstance(payload["data"], dict)
    assert payload["data"]["topicId"] == TOPIC_ID_TEXT


def group(protocol_type: str, subscription: bytes, assignment: bytes) -> GroupMetadataValue:
    member = MemberMetadata(
        member_id="m-1",
        group_instance_id="static",
        client_id="c",
        client_host="/10.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=subscription,
        assignment=assignment,
    )
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=4,
        protocol="range",
        leader="m-1",
        current_state_timestamp=NOW_MS,
        members=[member],
    )


SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=["orders"]), 0)
ASSIGNMENT = encode_versioned(
    ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition("orders", [0, 1])]), 0
)


def members(value: GroupMetadataValue) -> object:
    _, payload = decode_consumer_offsets(*record(GroupMetadataKey("readers"), value, version=3))
    assert isinstance(payload, dict)
    assert isinstance(payload["data"], dict)
    assert payload["data"]["generation"] == 4
    return payload["data"]["members"]


def test_classic_group_with_what_its_consumers_said() -> None:
    """C3: subscription and assignment are bytes of the clients' own protocol."""
    assert members(group("consumer", SUBSCRIPTION, ASSIGNMENT)) == [
        {
            "memberId": "m-1",
            "groupInstanceId": "static",
            "clientId": "c",
            "clientHost": "/10.0.0.1",
            "rebalanceTimeout": 60_000,
            "sessionTimeout": 10_000,
            "subscription": {"topics": ["orders"], "userData": None},
            "assignment": {
                "assignedPartitions": [{"topic": "orders", "partitions": [0, 1]}],
                "userData": None,
            },
        }
    ]


@pytest.mark.parametrize(
    ("protocol_type", "subscription"), [("connect", SUBSCRIPTION), ("consumer", b"\0")]
)
def test_bytes_of_other_protocols_stay_bytes(protocol_type: str, subscription: bytes) -> None:
    result = members(group(protocol_type, subscription, b""))
    assert isinstance(result, list)
    assert result[0]["subscription"] == subscription
    assert result[0]["assignment"] == b""


def test_consumer_group_of_the_new_protocol() -> None:
    """C3, KIP-848: structs within structs, and topic ids as Kafka prints them."""
    key, value = record(
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            assigned_partitions=[
                ConsumerGroupCurrentMemberAssignmentTopicPartitions(TOPIC_ID, [1, 2])
            ],
        ),
    )
    decoded_key, payload = decode_consumer_offsets(key, value)
    assert decoded_key == {"type": 8, "data": {"groupId": "g", "memberId": "m"}}
    assert isinstance(payload, dict)
    assert isinstance(payload["data"], dict)
    assert payload["data"]["assignedPartitions"] == [
        {"topicId": TOPIC_ID_TEXT, "partitions": [1, 2]}
    ]


def test_transaction_state() -> None:
    """P4"""
    key, value = record(
        TransactionLogKey("tx-1"),
        TransactionLogValue(
            producer_id=4000,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema("orders", [0, 2])],
            transaction_last_update_timestamp_ms=NOW_MS,
            transaction_start_timestamp_ms=NOW_MS - 5,
        ),
    )
    assert decode_transaction_state(key, value) == (
        {"type": 0, "data": {"transactionalId": "tx-1"}},
        {
            "version": 0,
            "data": {
                "producerId": 4000,
                "producerEpoch": 3,
                "transactionTimeoutMs": 60_000,
                "transactionStatus": 1,
                "transactionPartitions": [{"topic": "orders", "partitionIds": [0, 2]}],
                "transactionLastUpdateTimestampMs": NOW_MS,
                "transactionStartTimestampMs": NOW_MS - 5,
            },
        },
    )


def test_share_group_state() -> None:
    """Q7"""
    key, value = record(ShareSnapshotKey("g", TOPIC_ID, 1), ShareSnapshotValue(start_offset=9))
    decoded_key, payload = decode_share_group_state(key, value)
    assert decoded_key == {
        "type": 0,
        "data": {"groupId": "g", "topicId": TOPIC_ID_TEXT, "partition": 1},
    }
    assert isinstance(payload, dict)
    assert isinstance(payload["data"], dict)
    assert payload["data"]["startOffset"] == 9


@pytest.mark.parametrize(
    "decoder", [decode_consumer_offsets, decode_transaction_state, decode_share_group_state]
)
def test_what_is_no_record_of_the_topic(decoder: Decoder) -> None:
    with pytest.raises(ProtocolError, match="no key"):
        decoder(None, b"")
    with pytest.raises(ProtocolError):
        decoder(b"\0", b"")
    with pytest.raises(UnsupportedVersionError, match="record type 999"):
        decoder(b"\x03\xe7rest", b"")
    with pytest.raises(ProtocolError):
        decoder(b"\0\0", b"")


def test_a_record_that_cannot_be_decoded_is_shown_raw(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    key, value = record(OffsetCommitKey("g", "t", 0), OffsetCommitValue(offset=7), version=1)
    path.write_bytes(
        build_batch([Record(0, NOW_MS, b"plain", b"text"), Record(1, NOW_MS, key, value)])
    )
    options = SegmentOptions(records=True, data=True, decoder=decode_consumer_offsets)
    items = dump_items(path, DumpOptions(options))
    raw, decoded = of_kind(items, "record")
    assert (raw["key"], raw["payload"]) == (b"plain", b"text")
    assert decoded["key"] == {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}
    (result,) = of_kind(items, "problem")
    assert result["offset"] == 0
    assert "cannot be decoded" in str(result["problem"])
