"""Records that cannot be written, or are not committed in time: no state is lost (P4)."""

import pytest

from penstock.coordinator.txn.config import WRITE_RETRY_MS
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.support.coordinator.transactions import (
    FIRST_PRODUCER_ID,
    T0,
    T1,
    TIMEOUT_MS,
    Producer,
    TxnHost,
    add_request,
    in_state,
    init_request,
    ongoing,
    only_error,
)

S = TransactionState
SCAN_MS = 10_000


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def host(request: pytest.FixtureRequest) -> TxnHost:
    return TxnHost(version=int(request.param))


ERRORS = [
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(("error", "expected_error"), ERRORS)
def test_a_failed_write_returns_an_error_and_changes_nothing(
    host: TxnHost, error: ErrorCode, expected_error: ErrorCode
) -> None:
    host.append_error = error
    response = host.request(init_request(), InitProducerIdResponse)
    assert response == InitProducerIdResponse(
        error_code=expected_error, producer_id=-1, producer_epoch=-1
    )
    assert host.shard.transactions == {}
    producer = Producer(host)
    assert producer.init() == ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID + 1, 0)
    metadata = host.metadata()
    host.append_error = error
    assert producer.add(T0) == expected_error
    host.append_error = error
    assert producer.add_offsets() == expected_error
    assert host.metadata() == metadata
    assert producer.add(T0) == ErrorCode.NONE
    ongoing_ = host.metadata()
    host.append_error = error
    assert producer.end(commit=True) == expected_error
    assert host.metadata() == ongoing_
    assert host.markers == []
    assert producer.end(commit=True) == ErrorCode.NONE
    host.finish()
    assert host.state() is S.COMPLETE_COMMIT


def test_a_failed_fence_is_retried_at_the_same_epoch(host: TxnHost) -> None:
    """The retry uses the same epoch, not the next one."""
    producer = ongoing(host)
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Producer(host).init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.state() is S.ONGOING
    assert Producer(host).init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.metadata().producer_epoch == producer.epoch + 1


def test_a_timeout_that_cannot_be_written_is_retried(host: TxnHost) -> None:
    ongoing(host)
    host.advance(TIMEOUT_MS)
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    host.advance(SCAN_MS)
    assert host.append_error is None
    assert host.state() is S.ONGOING
    assert host.markers == []
    host.advance(WRITE_RETRY_MS)
    assert host.state() is S.PREPARE_ABORT
    assert len(host.markers) == 1


def test_an_expiry_that_cannot_be_written_is_retried(host: TxnHost) -> None:
    Producer(host).init()
    host.now += 8 * 86_400_000
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    host.advance(0)
    assert host.append_error is None
    assert host.state() is S.EMPTY
    host.advance(WRITE_RETRY_MS)
    assert host.shard.transactions == {}


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_completion_that_cannot_be_written_is_retried(
    host: TxnHost, state: TransactionState
) -> None:
    """Only the record is written again; the markers are already in place."""
    producer = in_state(host, state)
    host.write_markers(T0)
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    host.write_markers(T1)
    assert host.state() is state
    assert host.metadata().partitions == frozenset()
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    host.advance(WRITE_RETRY_MS)
    assert host.state() is state
    assert producer.add(T0) == ErrorCode.CONCURRENT_TRANSACTIONS
    host.advance(WRITE_RETRY_MS)
    assert host.state().state_name == state.state_name.replace("Prepare", "Complete")
    assert host.markers == []
    assert producer.add(T0) == ErrorCode.NONE


# --- appended, but not committed in time


def test_responses_and_markers_wait_for_the_commit(host: TxnHost) -> None:
    producer = ongoing(host, T0, T1)
    host.commits = False
    request = EndTxnRequest("x", producer.producer_id, producer.epoch, True)
    waiter = host.send(request, 5 if producer.version == 2 else 4)
    assert host.state() is S.PREPARE_COMMIT
    assert waiter not in host.responses
    assert host.markers == []
    host.commit()
    assert host.response(waiter, EndTxnResponse).error_code == 0
    assert [marker.partitions for marker in host.markers] == [{T0, T1}]


def test_an_end_committed_late_still_sends_its_markers(host: TxnHost) -> None:
    """The producer gets an error, but the markers are sent once the record is committed."""
    producer = ongoing(host, T0, T1)
    host.commits = False
    request = EndTxnRequest("x", producer.producer_id, producer.epoch, True)
    waiter = host.send(request, 5 if producer.version == 2 else 4)
    for _ in range(2):
        host.commit_fails()
        response = host.response(waiter, EndTxnResponse)
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert response.producer_id == -1
        assert host.markers == []
    host.commit()
    assert [marker.partitions for marker in host.markers] == [{T0, T1}]
    host.finish()
    assert host.state() is S.COMPLETE_COMMIT
    assert producer.end(commit=True) == ErrorCode.NONE


def test_a_timeout_committed_late_sends_its_markers(host: TxnHost) -> None:
    ongoing(host, T0)
    host.advance(TIMEOUT_MS)
    host.commits = False
    host.advance(SCAN_MS)
    host.commit_fails()
    assert host.markers == []
    host.commit()
    host.finish()
    assert host.state() is S.COMPLETE_ABORT


def test_partitions_committed_late_return_an_error(host: TxnHost) -> None:
    producer = Producer(host)
    producer.init()
    host.commits = False
    waiter = host.send(add_request("x", producer.producer_id, producer.epoch, [T0]))
    host.commit_fails()
    response = host.response(waiter, AddPartitionsToTxnResponse)
    assert only_error(response) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.commit()
    assert producer.add(T0) == ErrorCode.NONE
