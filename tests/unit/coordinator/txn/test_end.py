"""EndTxn: commit and abort, retries, and exhausted epochs (P4, KIP-890)."""

import pytest

from penstock.coordinator.txn.events import WriteMarkers
from penstock.coordinator.txn.metadata import MAX_EPOCH
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from tests.support.coordinator.transactions import (
    FIRST_PRODUCER_ID,
    T0,
    T1,
    Producer,
    TxnHost,
    in_state,
    ongoing,
)

S = TransactionState
LAST = MAX_EPOCH - 1
PREPARED = {True: S.PREPARE_COMMIT, False: S.PREPARE_ABORT}
COMPLETE = {True: S.COMPLETE_COMMIT, False: S.COMPLETE_ABORT}
NONE, FENCED, STATE = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
commits = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


# --- before version 2: the epoch does not change


@pytest.fixture(params=[(0, 4), (1, 4), (2, 4)], ids=["TV0", "TV1", "old client of TV2"])
def old_host(request: pytest.FixtureRequest) -> TxnHost:
    """The feature at each level, with clients that do not support version 2."""
    return TxnHost(version=int(request.param[0]))


@commits
def test_an_old_client_ends_a_transaction_at_the_same_epoch(
    old_host: TxnHost, commit: bool
) -> None:
    producer = ongoing(old_host, T0, T1, version=1)
    response = producer.ended(commit=commit)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, -1, -1)
    assert old_host.state() is PREPARED[commit]
    partitions = frozenset({T0, T1})
    marker = WriteMarkers("x", producer.producer_id, 0, commit, partitions, 0)
    assert old_host.markers == [marker]
    assert producer.ended(commit=commit).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    old_host.finish()
    metadata = old_host.metadata()
    assert metadata.state is COMPLETE[commit]
    assert metadata.partitions == frozenset()
    assert (metadata.producer_id, metadata.producer_epoch) == (producer.producer_id, 0)
    assert producer.ended(commit=commit).error_code == NONE
    assert producer.ended(commit=not commit).error_code == STATE
    assert producer.add(T0) == NONE
    assert producer.end(commit=commit) == NONE


@commits
@pytest.mark.parametrize(
    ("state", "same_result", "opposite_result"),
    [
        (S.EMPTY, STATE, STATE),
        (S.PREPARE_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (S.COMPLETE_COMMIT, NONE, STATE),
        (S.COMPLETE_ABORT, NONE, STATE),
    ],
)
def test_the_result_of_an_old_clients_end_depends_on_the_state(
    old_host: TxnHost,
    commit: bool,
    state: TransactionState,
    same_result: ErrorCode,
    opposite_result: ErrorCode,
) -> None:
    producer = in_state(old_host, state, version=1)
    metadata = old_host.metadata()
    was_commit = state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    assert producer.end(commit=commit) == (same_result if commit == was_commit else opposite_result)
    assert old_host.metadata() == metadata


@pytest.mark.parametrize("state", list(S)[:6])
def test_an_old_client_with_another_producer_id_or_epoch_is_rejected(
    old_host: TxnHost, state: TransactionState
) -> None:
    producer = in_state(old_host, state, version=1)
    metadata = old_host.metadata()
    for change in (-1, 1):
        producer.epoch += change
        assert producer.end(commit=True) == FENCED
        producer.epoch -= change
    producer.producer_id += 1
    assert producer.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert old_host.metadata() == metadata


# --- version 2: each end bumps the producer's epoch


@pytest.fixture
def host() -> TxnHost:
    return TxnHost(version=2)


@commits
def test_an_end_bumps_the_epoch(host: TxnHost, commit: bool) -> None:
    producer = ongoing(host, T0, T1)
    response = producer.ended(commit=commit)
    assert (response.error_code, response.producer_id) == (0, producer.producer_id)
    assert response.producer_epoch == 1
    marker = WriteMarkers("x", producer.producer_id, 1, commit, frozenset({T0, T1}), 2)
    assert host.markers == [marker]
    assert producer.ended(commit=commit).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    host.finish()
    assert host.state() is COMPLETE[commit]
    assert producer.ended(commit=commit) == response
    assert producer.ended(commit=not commit).error_code == STATE
    producer.epoch = response.producer_epoch
    assert producer.add(T0) == NONE
    assert producer.end(commit=commit) == NONE
    assert producer.epoch == 2


@pytest.mark.parametrize("epochs_behind", [0, 1, 2, -1], ids=["current", "retry", "older", "newer"])
@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        # by the age of the epoch: current, one older, two older, one newer
        (S.EMPTY, False, [NONE, FENCED, FENCED, FENCED]),
        (S.EMPTY, True, [STATE, FENCED, FENCED, FENCED]),
        (S.ONGOING, False, [NONE, FENCED, FENCED, FENCED]),
        (S.ONGOING, True, [NONE, FENCED, FENCED, FENCED]),
        (S.COMPLETE_ABORT, False, [NONE, NONE, FENCED, FENCED]),
        (S.COMPLETE_ABORT, True, [STATE, STATE, FENCED, FENCED]),
        (S.COMPLETE_COMMIT, False, [NONE, STATE, FENCED, FENCED]),
        (S.COMPLETE_COMMIT, True, [STATE, NONE, FENCED, FENCED]),
        (S.PREPARE_COMMIT, True, [ErrorCode.CONCURRENT_TRANSACTIONS] * 4),
        (S.PREPARE_COMMIT, False, [ErrorCode.CONCURRENT_TRANSACTIONS] * 4),
        (S.PREPARE_ABORT, True, [ErrorCode.CONCURRENT_TRANSACTIONS] * 4),
        (S.PREPARE_ABORT, False, [ErrorCode.CONCURRENT_TRANSACTIONS] * 4),
    ],
)
def test_the_result_of_an_end_depends_on_state_and_epoch(
    host: TxnHost,
    state: TransactionState,
    commit: bool,
    expected: list[ErrorCode],
    epochs_behind: int,
) -> None:
    producer = in_state(host, state)
    metadata = host.metadata()
    producer.epoch -= epochs_behind
    assert producer.end(commit=commit) == expected[epochs_behind]
    bumped = epochs_behind == 0 and expected[0] == NONE
    assert host.metadata().producer_epoch == metadata.producer_epoch + (1 if bumped else 0)
    if not bumped:
        assert host.metadata() == metadata


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_aborting_without_a_transaction_bumps_the_epoch(
    host: TxnHost, state: TransactionState
) -> None:
    """A producer in doubt aborts: it gets a new epoch, and no markers are written."""
    producer = in_state(host, state)
    host.advance(70)
    epoch = producer.epoch
    assert producer.end(commit=False) == NONE
    assert producer.epoch == epoch + 1
    assert host.state() is S.PREPARE_ABORT
    assert host.metadata().start_ms == host.now
    assert host.markers == []
    host.advance(0)
    assert host.state() is S.COMPLETE_ABORT
    producer.epoch = epoch
    assert producer.end(commit=False) == NONE
    assert producer.epoch == epoch + 1


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_end_with_another_producer_id_is_rejected(
    host: TxnHost, state: TransactionState
) -> None:
    producer = in_state(host, state)
    producer.producer_id += 1
    assert producer.end(commit=False) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@commits
def test_an_end_at_the_last_epoch_allocates_a_new_producer_id(host: TxnHost, commit: bool) -> None:
    producer = ongoing(host, T0)
    old = producer.producer_id
    host.put(producer_epoch=LAST)
    producer.epoch = LAST
    unheard = Producer(host)
    unheard.producer_id, unheard.epoch = old, LAST
    assert producer.end(commit=commit) == NONE
    assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID + 1, 0)
    (marker,) = host.markers
    assert (marker.producer_id, marker.producer_epoch) == (old, MAX_EPOCH)
    prepared = host.metadata()
    assert prepared.next_producer_id == producer.producer_id
    assert (prepared.producer_id, prepared.producer_epoch) == (old, MAX_EPOCH)
    for item in (producer, unheard):
        assert item.ended(commit=commit).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.add(T0) == ErrorCode.CONCURRENT_TRANSACTIONS
    host.finish()
    complete = host.metadata()
    assert (complete.producer_id, complete.producer_epoch) == (producer.producer_id, 0)
    assert (complete.previous_producer_id, complete.next_producer_id) == (old, -1)
    assert unheard.ended(commit=not commit).error_code == STATE
    assert unheard.end(commit=commit) == NONE
    assert (unheard.producer_id, unheard.epoch) == (producer.producer_id, 0)
    assert producer.add(T0) == NONE


def test_a_new_producer_id_survives_a_reload(host: TxnHost) -> None:
    producer = ongoing(host, T0)
    old = producer.producer_id
    host.put(producer_epoch=LAST)
    producer.epoch = LAST
    producer.end(commit=True)
    host.restart()
    host.finish()
    assert producer.add(T0) == NONE
    host.shard.transactions.clear()
    host.restart()
    producer.producer_id, producer.epoch = old, LAST
    assert producer.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_transaction_version_is_that_of_its_client(host: TxnHost) -> None:
    """Clients of partitions kinds on a coordinator that offers version 2."""
    old, new = Producer(host, "old", version=1), Producer(host, "new", version=2)
    for producer in (old, new):
        producer.init()
        assert producer.add(T0) == NONE
        assert producer.end(commit=True) == NONE
    assert [marker.transaction_version for marker in host.markers] == [0, 2]
    assert (old.epoch, new.epoch) == (0, 1)


def test_a_producer_upgrades_to_version_2(host: TxnHost) -> None:
    producer = ongoing(host, T0, version=1)
    producer.end(commit=True)
    host.finish()
    producer.version = 2
    assert producer.add(T1) == NONE
    assert producer.end(commit=True) == NONE
    assert producer.epoch == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_fenced_producer_does_not_get_its_successors_epoch(host: TxnHost, commit: bool) -> None:
    """Stricter than Kafka, which returns success for the successor's commit."""
    fenced, successor = Producer(host, version=2), Producer(host, version=1)
    fenced.init()
    successor.init()
    assert successor.add(T0) == NONE
    assert successor.end(commit=commit) == NONE
    host.finish()
    assert fenced.epoch + 1 == successor.epoch
    assert fenced.end(commit=commit) == ErrorCode.PRODUCER_FENCED
