"""Written markers, loading, timeouts and expiry (P4)."""

import pytest

from penstock.coordinator.machine import SetTimer, TimerFired
from penstock.coordinator.txn.config import TransactionConfig
from penstock.coordinator.txn.events import (
    AbortTimer,
    CompletionTimer,
    ExpiryTimer,
    MarkersWritten,
    Result,
)
from penstock.coordinator.txn.metadata import MAX_EPOCH
from penstock.coordinator.txn.shard import TransactionShard
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from tests.support.coordinator.transactions import (
    FIRST_PRODUCER_ID,
    T0,
    T1,
    T2,
    TIMEOUT_MS,
    Producer,
    TxnHost,
    in_state,
    ongoing,
    written,
)

S = TransactionState
DAY_MS = 86_400_000
SCAN_MS = 10_000


@pytest.fixture(params=[0, 1, 2], ids=["TV0", "TV1", "TV2"])
def host(request: pytest.FixtureRequest) -> TxnHost:
    return TxnHost(version=int(request.param))


# --- markers


def test_the_last_written_marker_completes_the_transaction(host: TxnHost) -> None:
    """Only the last partition writes a record."""
    producer = ongoing(host, T0, T1, T2)
    producer.end(commit=True)
    records = len(host.log)
    host.write_markers(T1)
    assert host.state() is S.PREPARE_COMMIT
    assert host.metadata().partitions == {T0, T2}
    host.write_markers(T0)
    assert len(host.log) == records
    host.write_markers(T2)
    assert host.state() is S.COMPLETE_COMMIT
    assert len(host.log) == records + 1


def test_repeated_and_late_markers_are_ignored(host: TxnHost) -> None:
    producer = ongoing(host, T0, T1)
    producer.end(commit=False)
    (marker,) = host.markers
    first = written(marker, frozenset({T0}))
    host.event(first)
    host.event(first)
    assert host.metadata().partitions == {T1}
    host.event(written(marker, frozenset({T0, T1})))
    assert host.state() is S.COMPLETE_ABORT
    metadata = host.metadata()
    assert host.event(first) == Result(first)
    assert host.metadata() == metadata


def test_markers_of_an_older_epoch_are_ignored() -> None:
    host = TxnHost()
    producer = ongoing(host, T0)
    producer.end(commit=True)
    (old,) = host.markers
    host.finish()
    producer.add(T0)
    producer.end(commit=False)
    metadata = host.metadata()
    host.event(written(old, old.partitions))
    assert host.metadata() == metadata
    host.finish()
    assert host.state() is S.COMPLETE_ABORT


def test_markers_of_other_producers_are_ignored(host: TxnHost) -> None:
    producer = in_state(host, S.PREPARE_COMMIT)
    transactions = dict(host.shard.transactions)
    epoch = host.metadata().producer_epoch
    partitions = frozenset({T0, T1})
    for event in (
        MarkersWritten("nobody", producer.producer_id, epoch, partitions),
        MarkersWritten("x", producer.producer_id + 1, epoch, partitions),
        MarkersWritten("x", producer.producer_id, epoch + 1, partitions),
    ):
        assert host.event(event) == Result(event)
        host.shard.apply(event)
    assert host.shard.transactions == transactions


# --- loading


def test_an_empty_log_loads() -> None:
    result = TransactionShard(TransactionConfig()).start(7)
    assert result == Result(
        timers=[SetTimer(AbortTimer(), 10_007), SetTimer(ExpiryTimer(), 3_600_007)], markers=[]
    )


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_markers_are_sent_again_after_a_load(host: TxnHost, state: TransactionState) -> None:
    """All markers are sent again: no record states which ones were written."""
    in_state(host, state)
    sent_markers = list(host.markers)
    host.write_markers(T0)
    host.restart()
    assert host.markers == sent_markers
    host.finish()
    assert host.state().state_name == state.state_name.replace("Prepare", "Complete")


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_no_markers_are_sent_after_a_load(host: TxnHost, state: TransactionState) -> None:
    producer = in_state(host, state)
    metadata = host.metadata()
    host.restart()
    assert host.markers == []
    assert host.metadata().partitions == metadata.partitions
    assert host.state() is state
    assert producer.add(T2) == ErrorCode.NONE


def test_an_end_without_partitions_completes_after_a_load() -> None:
    host = TxnHost()
    producer = in_state(host, S.EMPTY)
    producer.end(commit=False)
    host.restart()
    assert CompletionTimer("x") in host.timers
    host.advance(0)
    assert host.state() is S.COMPLETE_ABORT


def test_unloading_returns_no_responses(host: TxnHost) -> None:
    in_state(host, S.PREPARE_COMMIT)
    assert host.shard.unload() == []


def test_an_outdated_completion_timer_does_nothing(host: TxnHost) -> None:
    """The transaction may be complete, removed, or have partitions when the timer fires."""
    in_state(host, S.PREPARE_COMMIT)
    for name in ("x", "nobody"):
        host.timers.set(CompletionTimer(name), host.now)
    record_count = len(host.log)
    host.advance(0)
    assert len(host.log) == record_count


# --- timeouts


def test_a_transaction_is_aborted_after_its_timeout(host: TxnHost) -> None:
    producer = ongoing(host, T0, T1)
    host.advance(TIMEOUT_MS)
    assert host.state() is S.ONGOING
    host.advance(SCAN_MS)
    assert host.state() is S.PREPARE_ABORT
    (marker,) = host.markers
    assert (marker.producer_epoch, marker.commit) == (1, False)
    assert marker.partitions == {T0, T1}
    assert marker.transaction_version == (2 if producer.version == 2 else 0)
    host.finish()
    assert host.state() is S.COMPLETE_ABORT
    assert producer.add(T0) == ErrorCode.PRODUCER_FENCED
    expected_error = (
        ErrorCode.INVALID_TXN_STATE if producer.version == 2 else ErrorCode.PRODUCER_FENCED
    )
    assert producer.end(commit=True) == expected_error


def test_version_2_accepts_an_abort_after_the_timeout() -> None:
    host = TxnHost()
    producer = ongoing(host)
    host.advance(TIMEOUT_MS + SCAN_MS)
    host.finish()
    assert producer.end(commit=False) == ErrorCode.NONE
    assert producer.epoch == 1
    assert producer.add(T0) == ErrorCode.NONE


def test_the_timeout_scan_repeats(host: TxnHost) -> None:
    for name in ("a", "b"):
        producer = Producer(host, name)
        producer.init()
        producer.add(T0)
        host.advance(3 * SCAN_MS)
    host.advance(10 * SCAN_MS)
    assert {host.state(name) for name in ("a", "b")} == {S.PREPARE_ABORT}
    assert len(host.markers) == 2


@pytest.mark.parametrize("state", [S.EMPTY, S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_only_ongoing_transactions_time_out(host: TxnHost, state: TransactionState) -> None:
    in_state(host, state)
    metadata = host.metadata()
    host.advance(10 * TIMEOUT_MS)
    assert host.metadata() == metadata


@pytest.fixture
def timed_out() -> Producer:
    """A producer at its last epoch whose transaction has timed out."""
    host = TxnHost()
    producer = ongoing(host, T0)
    host.put(producer_epoch=MAX_EPOCH - 1)
    producer.epoch = MAX_EPOCH - 1
    host.advance(TIMEOUT_MS + SCAN_MS)
    host.finish()
    metadata = host.metadata()
    assert (metadata.state, metadata.producer_epoch) == (S.COMPLETE_ABORT, MAX_EPOCH)
    return producer


def test_no_producer_can_use_the_last_epoch(timed_out: Producer) -> None:
    assert timed_out.add(T0) == ErrorCode.PRODUCER_FENCED
    assert timed_out.end(commit=True) == ErrorCode.INVALID_TXN_STATE
    host = timed_out.host
    older = Producer(host)
    error = older.init(producer_id=timed_out.producer_id, producer_epoch=MAX_EPOCH - 2)
    assert error == ErrorCode.PRODUCER_FENCED
    assert older.init() == ErrorCode.NONE
    assert (older.producer_id, older.epoch) == (FIRST_PRODUCER_ID + 1, 0)


def test_a_timeout_with_the_last_epoch_then_an_abort(timed_out: Producer) -> None:
    """The producer continues with a new id, as it would with the next epoch."""
    response = timed_out.ended(commit=False)
    assert (response.producer_id, response.producer_epoch) == (FIRST_PRODUCER_ID + 1, 0)
    timed_out.host.advance(0)
    assert timed_out.ended(commit=False) == response
    assert timed_out.end(commit=False) == ErrorCode.NONE
    assert timed_out.add(T0) == ErrorCode.NONE


def test_a_timeout_with_the_last_epoch_then_a_bump(timed_out: Producer) -> None:
    unheard = Producer(timed_out.host)
    unheard.producer_id, unheard.epoch = timed_out.producer_id, timed_out.epoch
    for producer in (timed_out, unheard):
        assert producer.bump() == ErrorCode.NONE
        assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID + 1, 0)


# --- expiry


def sleep(host: TxnHost, milliseconds: int) -> None:
    """Advances the clock without running the scans that were due."""
    host.now += milliseconds


def test_the_scan_removes_expired_ids() -> None:
    config = TransactionConfig(
        transactional_id_expiration_ms=40_000, remove_expired_cleanup_interval_ms=30_000
    )
    host = TxnHost(config)
    Producer(host).init()
    host.advance(59_999)
    assert host.state() is S.EMPTY
    host.advance(1)
    assert host.shard.transactions == {}
    Producer(host).init()
    host.advance(60_000)
    assert host.shard.transactions == {}


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_unused_id_expires(host: TxnHost, state: TransactionState) -> None:
    producer = in_state(host, state)
    sleep(host, 7 * DAY_MS - 1)
    host.event(TimerFired(ExpiryTimer()))
    assert host.state() is state
    sleep(host, 1)
    host.event(TimerFired(ExpiryTimer()))
    assert host.shard.transactions == {}
    assert host.records()[-1].value is None
    host.restart()
    assert host.shard.transactions == {}
    assert producer.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.init() == ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == (FIRST_PRODUCER_ID + 1, 0)


def test_unfinished_transactions_do_not_expire() -> None:
    host = TxnHost(
        TransactionConfig(
            transactional_id_expiration_ms=1_000,
            remove_expired_cleanup_interval_ms=1_000,
            two_phase_commit_enable=True,
        )
    )
    ending = Producer(host, "ending")
    ending.init()
    ending.add(T0)
    ending.end(commit=True)
    lasting = Producer(host, "ongoing")
    lasting.init(6, enable_2pc=True)
    lasting.add(T0)
    host.advance(30 * SCAN_MS)
    assert set(host.shard.transactions) == {"ending", "ongoing"}


def test_a_used_id_does_not_expire(host: TxnHost) -> None:
    producer = Producer(host)
    for _ in range(4):
        producer.init()
        sleep(host, 5 * DAY_MS)
        host.event(TimerFired(ExpiryTimer()))
    assert host.state() is S.EMPTY
