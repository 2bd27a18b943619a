"""The encoding of `__transaction_state`, and records that cannot be decoded (P4)."""

import pytest

from penstock.coordinator.machine import Skipped
from penstock.coordinator.txn.java_order import by_topic
from penstock.coordinator.txn.metadata import (
    TransactionMetadata,
    metadata_of,
    prepare_add_partitions,
    record_of,
)
from penstock.coordinator.txn.records import (
    TransactionRecord,
    decode_record,
    encode_record,
    tombstone,
)
from penstock.coordinator.txn.state import (
    STATES_BY_NAME,
    VALID_PREVIOUS_STATES,
    TransactionState,
)
from penstock.core.ids import TopicPartition
from penstock.protocol.stored.transaction_log import TransactionLogKey, TransactionLogValue

S = TransactionState
FULL = TransactionMetadata(
    transactional_id="x",
    producer_id=7,
    timeout_ms=60_000,
    last_update_ms=1_000_001,
    previous_producer_id=6,
    next_producer_id=8,
    producer_epoch=3,
    last_producer_epoch=2,
    state=S.PREPARE_COMMIT,
    partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 5)}),
    start_ms=1_000_000,
    client_transaction_version=2,
)


def decoded(key: bytes | None, value: bytes | None) -> TransactionRecord:
    record = decode_record(key, value)
    assert isinstance(record, TransactionRecord)
    return record


def test_a_record_round_trips() -> None:
    """All fields except the last epoch, which is not stored."""
    record = decoded(*encode_record(record_of(FULL, 2)))
    assert record.value_version == 1
    assert record.value is not None
    decoded_metadata = metadata_of(record, record.value)
    assert decoded_metadata.last_producer_epoch == -1
    assert metadata_of(record_of(FULL, 2), record.value) == FULL


def test_version_0_has_no_tagged_fields() -> None:
    """Without the feature, an older broker can read every record."""
    key, value = encode_record(record_of(FULL, 0))
    assert value is not None
    assert value[:2] == b"\0\0"
    record = decoded(key, value)
    assert record.value is not None
    decoded_metadata = metadata_of(record, record.value)
    assert (decoded_metadata.previous_producer_id, decoded_metadata.next_producer_id) == (-1, -1)
    assert decoded_metadata.client_transaction_version == 0
    assert (decoded_metadata.producer_id, decoded_metadata.partitions) == (7, FULL.partitions)


def test_a_record_is_encoded_as_in_kafka() -> None:
    key, value = encode_record(record_of(FULL, 1))
    assert key.hex() == "0000" + "000178"
    assert value is not None
    assert value.hex() == (
        "0001"
        "0000000000000007" + "0003" + "0000ea60" + "02"
        "03"
        + ("0274" + "03" + "00000001" + "00000000" + "00")
        + ("0275" + "02" + "00000005" + "00")
        + "00000000000f4241"
        "00000000000f4240"
        "03" + "0008" + "0000000000000006" + "0108" + "0000000000000008" + "0202" + "0002"
    )


@pytest.mark.parametrize("state", list(S))
def test_only_an_empty_transaction_has_null_partitions(state: TransactionState) -> None:
    metadata = TransactionMetadata("x", 7, 1, 1, producer_epoch=0, state=state)
    value = record_of(metadata, 2).value
    assert value is not None
    assert value.transaction_partitions == (None if state is S.EMPTY else [])


def test_a_tombstone_round_trips() -> None:
    key, value = encode_record(tombstone("x"))
    assert value is None
    assert decoded(key, value) == tombstone("x")


def test_null_partitions_decode_to_an_empty_set() -> None:
    value = TransactionLogValue(transaction_status=S.ONGOING, transaction_partitions=None)
    record = TransactionRecord(TransactionLogKey("x"), value)
    assert metadata_of(record, value).partitions == frozenset()


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        (None, b"", "has no key"),
        (b"\0", None, "cannot be read"),
        (b"\0\7\0\1x", None, "record type 7"),
        (b"\0\0\0\1x", b"\0\2", "cannot be read"),
        (b"\0\0\0\1x", b"\0\1\0", "cannot be read"),
        (
            encode_record(
                TransactionRecord(TransactionLogKey("x"), TransactionLogValue(transaction_status=8))
            )[0],
            encode_record(
                TransactionRecord(TransactionLogKey("x"), TransactionLogValue(transaction_status=8))
            )[1],
            "transaction state 8",
        ),
    ],
)
def test_undecodable_records_are_skipped(key: bytes | None, value: bytes | None, note: str) -> None:
    record = decode_record(key, value)
    assert isinstance(record, Skipped)
    assert note in record.note


@pytest.mark.parametrize(
    ("count", "payments", "orders"),
    [
        (13, [3, 5, 1, 11, 7, 9], [8, 10, 12, 0, 2, 4, 6]),
        (
            30,
            [19, 21, 15, 17, 27, 29, 23, 25, 3, 5, 1, 11, 13, 7, 9],
            [8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 0, 2, 4, 6],
        ),
    ],
)
def test_partitions_are_in_the_order_of_javas_hash_set(
    count: int, payments: list[int], orders: list[int]
) -> None:
    """With tables of 32 and 64 buckets; the expected order is Kafka's."""
    topics = ("orders", "payments")
    grouped = by_topic(TopicPartition(topics[number % 2], number) for number in range(count))
    assert list(grouped.items()) == [("payments", payments), ("orders", orders)]


def test_state_names_are_kafkas() -> None:
    assert list(STATES_BY_NAME) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert [state.value for state in STATES_BY_NAME.values()] == list(range(8))
    assert {state for state in S if state.can_expire} == VALID_PREVIOUS_STATES[S.DEAD]


def test_an_invalid_transition_raises() -> None:
    with pytest.raises(ValueError, match="x cannot change from PrepareCommit to Ongoing"):
        prepare_add_partitions(FULL, frozenset(), 2, 1)
