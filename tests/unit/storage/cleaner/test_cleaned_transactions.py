"""Transactions as a cleaning meets them (S5, P4)."""

from penstock.records.batch import BatchHeader, read_header
from penstock.records.build import build_batch
from penstock.records.control import ControlType
from penstock.records.record import Record
from penstock.storage.cleaner.cleaned_transactions import CleanedTransactions, MarkerDecision
from penstock.storage.index.transaction_index import AbortedTxn


def data(offset: int, producer_id: int = 1, *, transactional: bool = True) -> BatchHeader:
    return read_header(
        build_batch(
            [Record(offset, 0, b"k", b"v")],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=transactional,
        )
    )


def control(offset: int, producer_id: int = 1, *, empty: bool = False) -> BatchHeader:
    return read_header(
        build_batch(
            [] if empty else [Record(offset, 0, b"\0\0\0\0", b"")],
            base_offset=offset,
            last_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
    )


def test_batches_of_an_aborted_transaction_are_known() -> None:
    txn = AbortedTxn(1, 10, 20, 21)
    observed = CleanedTransactions([txn])
    assert not observed.on_batch(data(5))
    assert observed.on_control_batch(control(6), ControlType.COMMIT) == MarkerDecision(
        can_discard=False
    )
    assert observed.on_batch(data(10))
    assert not observed.on_batch(data(11, producer_id=2))
    assert not observed.on_batch(data(12, transactional=False))
    assert observed.on_batch(data(13))
    assert observed.on_control_batch(control(20), ControlType.ABORT) == MarkerDecision(False, txn)
    assert not observed.on_batch(data(30))


def test_a_marker_without_batches_can_be_discarded() -> None:
    observed = CleanedTransactions([AbortedTxn(1, 10, 20, 21)])
    assert observed.on_control_batch(control(20), ControlType.ABORT) == MarkerDecision(
        can_discard=True
    )
    assert observed.on_control_batch(control(21), ControlType.ABORT) == MarkerDecision(
        can_discard=True
    )
    assert observed.on_control_batch(control(22), ControlType.COMMIT) == MarkerDecision(
        can_discard=True
    )
    assert observed.on_control_batch(control(23, empty=True), ControlType.UNKNOWN).can_discard


def test_a_commit_marker_is_kept_only_for_earlier_batches() -> None:
    observed = CleanedTransactions([])
    assert not observed.on_batch(data(1))
    assert not observed.on_control_batch(control(2), ControlType.COMMIT).can_discard
    assert observed.on_control_batch(control(3), ControlType.COMMIT).can_discard


def test_other_control_batches_are_kept() -> None:
    observed = CleanedTransactions([])
    assert not observed.on_control_batch(control(1), ControlType.LEADER_CHANGE).can_discard
    assert not observed.on_control_batch(control(2), ControlType.UNKNOWN).can_discard


def test_a_producer_may_abort_one_transaction_after_the_other() -> None:
    first, second = AbortedTxn(1, 10, 12, 13), AbortedTxn(1, 14, 16, 17)
    observed = CleanedTransactions([second, first, second])
    assert observed.on_batch(data(10))
    assert observed.on_control_batch(control(12), ControlType.ABORT).aborted == first
    assert observed.on_batch(data(15))
    assert observed.on_control_batch(control(16), ControlType.ABORT).aborted == second


def test_transactions_that_ended_before_the_start_are_ignored() -> None:
    """Its marker is never read: the producer's next batches would all count as aborted."""
    observed = CleanedTransactions([AbortedTxn(1, 10, 12, 13)], start_offset=13)
    assert not observed.on_batch(data(14))
