"""AddPartitionsToTxn, its verification, and AddOffsetsToTxn (P4)."""

import pytest

from penstock.coordinator.partitioning import partition_for
from penstock.coordinator.txn.config import TransactionConfig
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from tests.support.coordinator.shard_host import START_MS
from tests.support.coordinator.transactions import (
    T0,
    T1,
    T2,
    Producer,
    TxnHost,
    add_request,
    errors_of,
    in_state,
    ongoing,
)

S = TransactionState


@pytest.fixture(params=[0, 1, 2], ids=["TV0", "TV1", "TV2"])
def host(request: pytest.FixtureRequest) -> TxnHost:
    return TxnHost(version=int(request.param))


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(host: TxnHost, state: TransactionState) -> None:
    producer = in_state(host, state)
    host.advance(500)
    assert producer.add(T2) == ErrorCode.NONE
    metadata = host.metadata()
    assert metadata.state is S.ONGOING
    assert metadata.partitions == {T2}
    assert metadata.start_ms == START_MS + 500
    assert metadata.client_transaction_version == (2 if producer.version == 2 else 0)


def test_partitions_are_added_to_an_ongoing_transaction(host: TxnHost) -> None:
    producer = ongoing(host, T0)
    host.advance(500)
    assert producer.add(T1, T0) == ErrorCode.NONE
    metadata = host.metadata()
    assert metadata.partitions == {T0, T1}
    assert metadata.start_ms == START_MS
    assert metadata.last_update_ms == START_MS + 500


def test_adding_known_partitions_writes_no_record(host: TxnHost) -> None:
    producer = ongoing(host, T0, T1)
    record_count = len(host.log)
    assert producer.add(T1) == ErrorCode.NONE
    assert len(host.log) == record_count


def test_adding_no_partitions_begins_a_transaction(host: TxnHost) -> None:
    producer = Producer(host)
    producer.init()
    request = add_request("x", producer.producer_id, producer.epoch, ())
    response = host.request(request, AddPartitionsToTxnResponse, 3)
    assert errors_of(response) == []
    assert host.state() is S.ONGOING
    assert producer.end(commit=True) == ErrorCode.NONE
    assert host.markers == []
    host.advance(0)
    assert host.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_partitions_cannot_be_added_while_markers_are_written(
    host: TxnHost, state: TransactionState
) -> None:
    """The producer gets CONCURRENT_TRANSACTIONS, even with an unknown producer id."""
    producer = in_state(host, state)
    assert producer.add(T0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.add_offsets() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.verify(T0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    producer.producer_id += 1
    assert producer.add(T0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.verify(T0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_requests_of_another_producer_are_rejected(host: TxnHost, state: TransactionState) -> None:
    producer = in_state(host, state)
    metadata = host.metadata()
    for change in (-1, 1):
        producer.epoch += change
        assert producer.add(T2) == ErrorCode.PRODUCER_FENCED
        assert producer.add_offsets() == ErrorCode.PRODUCER_FENCED
        assert producer.verify(T2) == [ErrorCode.PRODUCER_FENCED]
        producer.epoch -= change
    producer.producer_id += 1
    assert producer.add(T2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.add_offsets() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.verify(T2) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert host.metadata() == metadata


@pytest.mark.parametrize(
    ("name", "error"),
    [("", ErrorCode.INVALID_REQUEST), ("nobody", ErrorCode.INVALID_PRODUCER_ID_MAPPING)],
)
def test_unknown_transactional_ids_are_rejected(host: TxnHost, name: str, error: ErrorCode) -> None:
    producer = Producer(host, name)
    assert producer.add(T0) == error
    assert producer.add_offsets() == error
    assert producer.verify(T0, T1) == [error, error]
    assert producer.end(commit=True) == error
    assert producer.end(commit=True, version=4) == error


@pytest.mark.parametrize(
    ("version", "expected_error"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_the_fencing_error_depends_on_the_request_version(
    host: TxnHost, version: int, expected_error: ErrorCode
) -> None:
    producer = ongoing(host)
    producer.epoch += 1
    assert producer.add(T0, version=version) == expected_error
    assert producer.add_offsets(version=version) == expected_error
    assert producer.end(commit=True, version=version) == expected_error


def test_verification_adds_no_partitions(host: TxnHost) -> None:
    """A partition that is not in the transaction gets an abortable error."""
    producer = ongoing(host, T0, T1)
    record_count = len(host.log)
    missing = ErrorCode.TRANSACTION_ABORTABLE
    assert producer.verify(T0, T2, T1) == [ErrorCode.NONE, missing, ErrorCode.NONE]
    assert len(host.log) == record_count


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_verification_fails_without_a_transaction(host: TxnHost, state: TransactionState) -> None:
    producer = in_state(host, state)
    assert producer.verify(T0) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_adding_offsets_adds_the_groups_partition() -> None:
    host = TxnHost(TransactionConfig(group_partitions=7))
    producer = ongoing(host, T0)
    assert producer.add_offsets("some-group") == ErrorCode.NONE
    offsets = TopicPartition("__consumer_offsets", partition_for("some-group", 7))
    assert host.metadata().partitions == {T0, offsets}
    assert host.metadata().client_transaction_version == 0
    record_count = len(host.log)
    assert producer.add_offsets("some-group") == ErrorCode.NONE
    assert len(host.log) == record_count
