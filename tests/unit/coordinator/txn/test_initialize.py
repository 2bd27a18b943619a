"""InitProducerId: epochs, fencing, and retries of an existing producer (P4, KIP-360)."""

import pytest

from penstock.coordinator.txn.config import TransactionConfig
from penstock.coordinator.txn.events import WriteMarkers
from penstock.coordinator.txn.metadata import MAX_EPOCH, NO_TIMEOUT_MS
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.support.coordinator.shard_host import START_MS
from tests.support.coordinator.transactions import (
    FIRST_PRODUCER_ID,
    T0,
    T1,
    TIMEOUT_MS,
    Producer,
    TxnHost,
    in_state,
    init_request,
    ongoing,
)

S = TransactionState
LAST = MAX_EPOCH - 1


@pytest.fixture(params=[0, 1, 2], ids=["TV0", "TV1", "TV2"])
def host(request: pytest.FixtureRequest) -> TxnHost:
    return TxnHost(version=int(request.param))


def test_a_new_transactional_id_gets_a_producer_id(host: TxnHost) -> None:
    producer = Producer(host)
    assert producer.init() == ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID, 0)
    metadata = host.metadata()
    assert metadata.state is S.EMPTY
    assert metadata.timeout_ms == TIMEOUT_MS
    assert (metadata.start_ms, metadata.last_update_ms) == (-1, START_MS)
    assert metadata.previous_producer_id == FIRST_PRODUCER_ID


def test_the_next_producer_gets_the_next_epoch(host: TxnHost) -> None:
    first, second = Producer(host), Producer(host)
    first.init()
    assert second.init(transaction_timeout_ms=5_000) == ErrorCode.NONE
    assert (second.producer_id, second.epoch) == (first.producer_id, 1)
    assert host.metadata().timeout_ms == 5_000
    assert first.add(T0) == ErrorCode.PRODUCER_FENCED
    assert second.add(T0) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"enable_2pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (
            {"enable_2pc": True, "keep_prepared_txn": True},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (
            {"keep_prepared_txn": True, "transaction_timeout_ms": 0},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_invalid_requests_are_rejected(
    host: TxnHost, fields: dict[str, object], error: ErrorCode
) -> None:
    response = host.request(init_request(**fields), InitProducerIdResponse, 6)
    assert response == InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    assert host.log == []
    assert host.next_producer_id == FIRST_PRODUCER_ID


def test_two_phase_commit_has_no_timeout() -> None:
    scan_ms = NO_TIMEOUT_MS // 4
    host = TxnHost(
        TransactionConfig(two_phase_commit_enable=True, abort_timed_out_cleanup_interval_ms=scan_ms)
    )
    producer = Producer(host)
    assert producer.init(6, enable_2pc=True, transaction_timeout_ms=0) == ErrorCode.NONE
    assert host.metadata().timeout_ms == NO_TIMEOUT_MS
    producer.add(T0)
    host.advance(2 * NO_TIMEOUT_MS)
    assert host.state() is S.ONGOING


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_idle_transaction_gets_the_next_epoch(host: TxnHost, state: TransactionState) -> None:
    producer = in_state(host, state)
    successor = Producer(host)
    assert successor.init() == ErrorCode.NONE
    assert (successor.producer_id, successor.epoch) == (producer.producer_id, producer.epoch + 1)
    assert host.state() is S.EMPTY
    assert host.metadata().last_producer_epoch == -1


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("expects", [False, True])
def test_initialization_is_retriable_while_markers_are_written(
    host: TxnHost, state: TransactionState, expects: bool
) -> None:
    """Even for another producer's id, which is validated only after the markers are written."""
    in_state(host, state)
    metadata = host.metadata()
    fields = {"producer_id": 77, "producer_epoch": 3} if expects else {}
    assert Producer(host).init(**fields) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.metadata() == metadata


def test_an_ongoing_transaction_is_aborted_first(host: TxnHost) -> None:
    old = ongoing(host, T0, T1)
    new = Producer(host)
    assert new.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    version = host.config.transaction_version
    marked = 2 if version == 2 else 0
    assert host.markers == [
        WriteMarkers("x", old.producer_id, 1, False, frozenset({T0, T1}), marked)
    ]
    assert new.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    host.finish()
    assert host.state() is S.COMPLETE_ABORT
    assert new.init() == ErrorCode.NONE
    assert (new.producer_id, new.epoch) == (old.producer_id, 2)
    assert old.add(T0) == ErrorCode.PRODUCER_FENCED
    assert old.end(commit=True) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("version", "expected_error"), [(3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED")]
)
def test_the_fencing_error_depends_on_the_request_version(
    host: TxnHost, version: int, expected_error: str
) -> None:
    old, new = Producer(host), Producer(host)
    old.init()
    new.init()
    assert old.bump(version).name == expected_error


# --- KIP-360: a producer with an id requests its next epoch


def test_a_bump_and_its_retry_return_the_same_epoch(host: TxnHost) -> None:
    producer = Producer(host)
    producer.init()
    unheard = Producer(host)
    unheard.producer_id, unheard.epoch = producer.producer_id, producer.epoch
    assert producer.bump() == ErrorCode.NONE
    assert producer.epoch == 1
    assert host.metadata().last_producer_epoch == 0
    assert unheard.bump() == ErrorCode.NONE
    assert unheard.epoch == 1
    assert producer.bump() == ErrorCode.NONE
    assert producer.epoch == 2
    assert unheard.bump() == ErrorCode.NONE


def test_a_retry_after_a_reload_is_fenced(host: TxnHost) -> None:
    """No record contains the last epoch, as in Kafka."""
    producer = Producer(host)
    producer.init()
    epoch = producer.epoch
    producer.bump()
    host.restart()
    assert producer.bump() == ErrorCode.NONE
    producer.epoch = epoch
    assert producer.bump() == ErrorCode.PRODUCER_FENCED


def test_a_bump_after_another_producer_is_fenced(host: TxnHost) -> None:
    old, new = Producer(host), Producer(host)
    old.init()
    new.init()
    assert old.bump() == ErrorCode.PRODUCER_FENCED
    assert new.bump() == ErrorCode.NONE


def test_a_bump_with_another_producer_id_is_rejected(host: TxnHost) -> None:
    Producer(host).init()
    error = Producer(host).init(producer_id=5, producer_epoch=0)
    assert error == ErrorCode.PRODUCER_FENCED


def test_a_bump_of_an_expired_transactional_id_gets_a_new_producer_id(host: TxnHost) -> None:
    producer = Producer(host)
    assert producer.init(producer_id=5, producer_epoch=7) == ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID, 0)


def test_a_bump_aborts_the_ongoing_transaction(host: TxnHost) -> None:
    producer = ongoing(host)
    assert producer.bump() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.state() is S.PREPARE_ABORT
    host.finish()
    fenced = host.config.transaction_version < 2
    assert producer.bump() == (ErrorCode.PRODUCER_FENCED if fenced else ErrorCode.NONE)


# --- exhausted epochs


def test_a_new_producer_after_the_last_epoch_gets_a_new_id(host: TxnHost) -> None:
    host.put(producer_id=5, producer_epoch=LAST)
    producer = Producer(host)
    assert producer.init() == ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID, 0)
    assert host.metadata().previous_producer_id == 5
    assert host.metadata().last_producer_epoch == -1


def test_a_bump_at_the_last_epoch_and_its_retry_return_a_new_id(host: TxnHost) -> None:
    host.put(producer_id=5, producer_epoch=LAST)
    producer, unheard = Producer(host), Producer(host)
    for item in (producer, unheard):
        item.producer_id, item.epoch = 5, LAST
    assert producer.bump() == ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID, 0)
    assert unheard.bump() == ErrorCode.NONE
    assert (unheard.producer_id, unheard.epoch) == (FIRST_PRODUCER_ID, 0)


def test_an_old_epoch_of_an_exhausted_id_is_fenced(host: TxnHost) -> None:
    host.put(producer_id=5, producer_epoch=LAST)
    error = Producer(host).init(producer_id=5, producer_epoch=LAST - 1)
    assert error == ErrorCode.PRODUCER_FENCED
    host.put(last_producer_epoch=LAST - 1)
    retry = Producer(host)
    assert retry.init(producer_id=5, producer_epoch=LAST - 1) == ErrorCode.NONE
    assert (retry.producer_id, retry.epoch) == (5, LAST)


def test_a_fence_at_the_last_epoch_but_one_uses_the_last_epoch(host: TxnHost) -> None:
    """In version 2, the completed transaction has a new producer id."""
    producer = ongoing(host, T0)
    host.put(producer_epoch=LAST)
    new = Producer(host)
    assert new.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.markers[0].producer_epoch == MAX_EPOCH
    host.finish()
    metadata = host.metadata()
    if host.config.transaction_version == 2:
        assert (metadata.producer_id, metadata.producer_epoch) == (FIRST_PRODUCER_ID + 1, 0)
        assert metadata.next_producer_id == -1
    else:
        assert (metadata.producer_id, metadata.producer_epoch) == (producer.producer_id, MAX_EPOCH)
    assert new.init() == ErrorCode.NONE
    assert new.producer_id == FIRST_PRODUCER_ID + 1
