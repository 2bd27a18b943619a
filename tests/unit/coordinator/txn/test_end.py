"""EndTxn: commit and abort, retries, and epochs that are used up (P4, KIP-890)."""

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


# --- before version 2: the epoch stays


@pytest.fixture(params=[(0, 4), (1, 4), (2, 4)], ids=["TV0", "TV1", "old client of TV2"])
def old_host(request: pytest.FixtureRequest) -> TxnHost:
    """The feature at any level, with clients that do not know version 2."""
    return TxnHost(version=int(request.param[0]))


@commits
def test_ending_at_the_same_epoch(old_host: TxnHost, commit: bool) -> None:
    producer = ongoing(old_host, T0, T1, version=1)
    response = producer.ended(commit=commit)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, -1, -1)
    assert old_host.state() is PREPARED[commit]
    both = frozenset({T0, T1})
    marker = WriteMarkers("x", producer.producer_id, 0, commit, both, 0)
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
    ("state", "same", "other"),
    [
        (S.EMPTY, STATE, STATE),
        (S.PREPARE_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (S.COMPLETE_COMMIT, NONE, STATE),
        (S.COMPLETE_ABORT, NONE, STATE),
    ],
)
def test_ending_at_the_same_epoch_in_each_state(
    old_host: TxnHost, commit: bool, state: TransactionState, same: ErrorCode, other: ErrorCode
) -> None:
    producer = in_state(old_host, state, version=1)
    before = old_host.metadata()
    was_commit = state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    assert producer.end(commit=commit) == (same if commit == was_commit else other)
    assert old_host.metadata() == before


@pytest.mark.parametrize("state", list(S)[:6])
def test_an_old_client_that_is_not_the_producer(old_host: TxnHost, state: TransactionState) -> None:
    producer = in_state(old_host, state, version=1)
    before = old_host.metadata()
    for change in (-1, 1):
        producer.epoch += change
        assert producer.end(commit=True) == FENCED
        producer.epoch -= change
    producer.producer_id += 1
    assert producer.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert old_host.metadata() == before


# --- version 2: each end takes the producer to the next epoch


@pytest.fixture
def host() -> TxnHost:
    return TxnHost(version=2)


@commits
def test_ending_with_the_next_epoch(host: TxnHost, commit: bool) -> None:
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


@pytest.mark.parametrize("back", [0, 1, 2, -1], ids=["current", "retry", "older", "newer"])
@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        # by the distance of the epoch: current, one back, two back, one ahead
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
def test_ending_in_each_state(
    host: TxnHost,
    state: TransactionState,
    commit: bool,
    expected: list[ErrorCode],
    back: int,
) -> None:
    producer = in_state(host, state)
    before = host.metadata()
    producer.epoch -= back
    assert producer.end(commit=commit) == expected[back]
    bumped = back == 0 and expected[0] == NONE
    assert host.metadata().producer_epoch == before.producer_epoch + (1 if bumped else 0)
    if not bumped:
        assert host.metadata() == before


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_aborting_what_the_coordinator_has_not_heard_of(
    host: TxnHost, state: TransactionState
) -> None:
    """A producer that does not know how far it came aborts: it gets an epoch, no markers."""
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
def test_another_producer_id(host: TxnHost, state: TransactionState) -> None:
    producer = in_state(host, state)
    producer.producer_id += 1
    assert producer.end(commit=False) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@commits
def test_the_last_epoch_leads_to_a_new_id(host: TxnHost, commit: bool) -> None:
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


def test_the_last_epoch_across_a_reload(host: TxnHost) -> None:
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


def test_the_version_of_a_transaction_is_that_of_its_client(host: TxnHost) -> None:
    """Clients of both kinds on a coordinator that offers version 2."""
    old, new = Producer(host, "old", version=1), Producer(host, "new", version=2)
    for producer in (old, new):
        producer.init()
        assert producer.add(T0) == NONE
        assert producer.end(commit=True) == NONE
    assert [marker.transaction_version for marker in host.markers] == [0, 2]
    assert (old.epoch, new.epoch) == (0, 1)


def test_a_producer_that_learns_version_2(host: TxnHost) -> None:
    producer = ongoing(host, T0, version=1)
    producer.end(commit=True)
    host.finish()
    producer.version = 2
    assert producer.add(T1) == NONE
    assert producer.end(commit=True) == NONE
    assert producer.epoch == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_fenced_producer_does_not_become_its_successor(host: TxnHost, commit: bool) -> None:
    """Stricter than Kafka: there it is told of a commit that was the successor's."""
    fenced, successor = Producer(host, version=2), Producer(host, version=1)
    fenced.init()
    successor.init()
    assert successor.add(T0) == NONE
    assert successor.end(commit=commit) == NONE
    host.finish()
    assert fenced.epoch + 1 == successor.epoch
    assert fenced.end(commit=commit) == ErrorCode.PRODUCER_FENCED
