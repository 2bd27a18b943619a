"""Which batches of a producer are refused, and with which error (P3, P4).

Epochs, sequences, markers and verification were compared with ProducerAppendInfo of Kafka 4.3.1
on random histories. One rule differs: Kafka refuses a leader's marker of unknown transaction
version as a mistake of the caller, here it counts as version 0.
"""

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import BatchHeader
from penstock.records.control import ControlType, EndTxnMarker
from penstock.storage.producer.append_info import (
    BatchMetadata,
    CompletedTxn,
    ProducerAppendInfo,
    ProducerStateEntry,
    VerificationStateEntry,
)

PID = 7
CLIENT = AppendOrigin.CLIENT
COORDINATOR = AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION
MAX_SEQUENCE = 2**31 - 1


def batch(
    sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, txn: bool = False
) -> BatchHeader:
    attributes = 0x10 if txn else 0
    return BatchHeader(
        offset, 49, 0, 2, 0, attributes, count - 1, 1000, 1000, PID, epoch, sequence, count
    )


def control(*, epoch: int = 0, offset: int = 50, timestamp: int = 2000) -> BatchHeader:
    return BatchHeader(offset, 49, 0, 2, 0, 0x30, 0, timestamp, timestamp, PID, epoch, -1, 1)


def marker(kind: ControlType = ControlType.COMMIT, coordinator_epoch: int = 0) -> EndTxnMarker:
    return EndTxnMarker(kind, PID, 0, coordinator_epoch)


def known(
    epoch: int = 0,
    last_sequence: int = 9,
    *,
    coordinator_epoch: int = -1,
    txn: int | None = None,
    batches: bool = True,
) -> ProducerStateEntry:
    last = BatchMetadata(last_sequence, 40, 0, 900)
    remaining = (last,) if batches else ()
    return ProducerStateEntry(PID, epoch, coordinator_epoch, 900, txn, remaining)


def info(
    current: ProducerStateEntry | None = None,
    origin: AppendOrigin = CLIENT,
    verification: VerificationStateEntry | None = None,
) -> ProducerAppendInfo:
    entry = current or ProducerStateEntry(PID)
    return ProducerAppendInfo(TopicPartition("orders", 3), PID, entry, origin, verification)


def refused(
    run: ProducerAppendInfo,
    header: BatchHeader,
    *,
    marker: EndTxnMarker | None = None,
    transaction_version: int = -1,
) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        run.append(header, marker=marker, transaction_version=transaction_version)
    assert str(PID) in caught.value.message
    assert "orders-3" in caught.value.message
    return caught.value.code


# --- sequences


@pytest.mark.parametrize(
    ("last", "accepted", "not_accepted"),
    [
        (9, 10, [0, 8, 9, 11]),
        (MAX_SEQUENCE, 0, [1, MAX_SEQUENCE]),
        (MAX_SEQUENCE - 1, MAX_SEQUENCE, [0]),
    ],
)
def test_sequences_follow_each_other_and_wrap(
    last: int, accepted: int, not_accepted: list[int]
) -> None:
    """P3: gaps are refused."""
    for sequence in not_accepted:
        code = refused(info(known(0, last)), batch(sequence))
        assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    run = info(known(0, last))
    run.append(batch(accepted))
    assert run.entry.last_sequence == accepted


def test_batches_of_one_append_follow_each_other() -> None:
    run = info(known(0, 9))
    run.append(batch(10, 5))
    run.append(batch(15, 5, offset=5))
    assert refused(run, batch(21)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_may_wrap() -> None:
    run = info(known(0, MAX_SEQUENCE - 2))
    run.append(batch(MAX_SEQUENCE - 1, 5))
    assert run.entry.last_sequence == 2
    assert run.entry.batches[0].first_sequence == MAX_SEQUENCE - 1
    run.append(batch(3))


def test_an_unknown_producer_may_start_with_any_sequence() -> None:
    """Retention may have removed all that it wrote."""
    for sequence in (0, 5, MAX_SEQUENCE):
        run = info()
        run.append(batch(sequence, epoch=4))
        assert (run.entry.producer_epoch, run.entry.last_sequence) == (4, sequence)


def test_an_unknown_producer_may_jump_within_its_first_append() -> None:
    run = info()
    run.append(batch(5))
    run.append(batch(77))
    assert run.entry.last_sequence == 77


def test_a_new_epoch_starts_with_zero() -> None:
    code = refused(info(known(3)), batch(10, epoch=4))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    run = info(known(3))
    run.append(batch(0, epoch=4))
    assert list(run.entry.batches) == [BatchMetadata(0, 0, 0, 1000)]


def test_a_producer_known_by_a_marker_only_starts_with_zero() -> None:
    code = refused(info(known(3, batches=False)), batch(5, epoch=3))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    info(known(3, batches=False)).append(batch(0, epoch=3))


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_clients_have_their_sequences_checked(origin: AppendOrigin) -> None:
    run = info(known(0, 9), origin)
    run.append(batch(77))
    assert run.entry.last_sequence == 77


# --- epochs


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_an_old_epoch_is_fenced(origin: AppendOrigin) -> None:
    """P4: zombies are refused with the error that lets a client abort and go on."""
    assert refused(info(known(3), origin), batch(0, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    code = refused(info(known(3), origin), control(epoch=2), marker=marker())
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_follower_accepts_what_its_leader_accepted() -> None:
    run = info(known(3, coordinator_epoch=5), REPLICATION)
    run.append(batch(0, epoch=2))
    run.append(control(epoch=1), marker=marker(coordinator_epoch=1))
    assert (run.entry.producer_epoch, run.entry.coordinator_epoch) == (1, 1)


def test_an_old_coordinator_is_fenced() -> None:
    for epoch, fenced in [(4, True), (5, False), (6, False)]:
        run = info(known(3, coordinator_epoch=5), COORDINATOR)
        if fenced:
            code = refused(run, control(epoch=3), marker=marker(coordinator_epoch=epoch))
            assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        else:
            run.append(control(epoch=3), marker=marker(coordinator_epoch=epoch))
            assert run.entry.coordinator_epoch == epoch


# --- transactions


def test_a_transaction_starts_with_its_first_batch() -> None:
    run = info(known(0, 9))
    run.append(batch(10, 3, offset=41, txn=True))
    run.append(batch(13, 2, offset=44, txn=True))
    assert run.entry.current_txn_first_offset == 41
    [txn] = run.started_transactions
    assert (txn.producer_id, txn.first_offset, txn.last_offset) == (PID, 41, None)
    assert repr(txn) == "TxnMetadata(producer 7, 41)"


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    code = refused(info(known(0, 9, txn=30)), batch(10))
    assert code is ErrorCode.INVALID_TXN_STATE
    info(known(0, 9, txn=30)).append(batch(10, txn=True))


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_ends_the_transaction(kind: ControlType) -> None:
    run = info(known(0, 9, txn=30), COORDINATOR)
    ended = run.append(control(), marker=marker(kind, 4))
    assert ended == CompletedTxn(PID, 30, 50, kind is ControlType.ABORT)
    entry = run.entry
    assert (entry.current_txn_first_offset, entry.coordinator_epoch) == (None, 4)
    assert entry.last_timestamp == 2000


def test_a_marker_without_data_before_it_completes_nothing() -> None:
    run = info(known(0, 9), COORDINATOR)
    assert run.append(control(epoch=1), marker=marker()) is None
    assert run.entry.producer_epoch == 1
    assert not run.entry.batches


def test_a_marker_and_the_next_transaction_in_one_append() -> None:
    run = info(known(0, 9, txn=30), REPLICATION)
    assert run.append(control(offset=50), marker=marker()) is not None
    run.append(batch(10, offset=51, txn=True))
    assert run.entry.current_txn_first_offset == 51
    assert [txn.first_offset for txn in run.started_transactions] == [51]


@pytest.mark.parametrize("emptied", [None, EndTxnMarker(ControlType.UNKNOWN, PID, 0, -1)])
def test_an_emptied_control_batch_changes_nothing(emptied: EndTxnMarker | None) -> None:
    run = info(known(0, 9, txn=30), REPLICATION)
    assert run.append(control(epoch=5), marker=emptied) is None
    assert (run.entry.current_txn_first_offset, run.entry.producer_epoch) == (30, 0)


# --- transactions of version 2 (KIP-890)


@pytest.mark.parametrize(
    ("version", "epoch", "open_txn", "accepted"),
    [
        (-1, 3, True, True),
        (0, 3, True, True),
        (1, 3, True, True),
        (2, 3, True, False),
        (2, 4, True, True),
        (2, 3, False, True),  # the same marker once more
        (2, 2, False, False),
        (2, 2, True, False),
        (3, 3, True, False),
    ],
)
def test_from_version_2_on_a_marker_must_raise_the_epoch(
    version: int, epoch: int, open_txn: bool, accepted: bool
) -> None:
    run = info(known(3, txn=30 if open_txn else None), COORDINATOR)
    if accepted:
        ended = run.append(control(epoch=epoch), marker=marker(), transaction_version=version)
        assert (ended is not None) == open_txn
    else:
        code = refused(run, control(epoch=epoch), marker=marker(), transaction_version=version)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_epoch_at_its_limit_may_be_reused() -> None:
    run = info(known(32767, txn=30), COORDINATOR)
    ended = run.append(control(epoch=32767), marker=marker(), transaction_version=2)
    assert ended == CompletedTxn(PID, 30, 50, is_aborted=False)


def test_transaction_version_2_does_not_affect_data_batches() -> None:
    run = info(known(3, 9, txn=30))
    run.append(batch(10, epoch=3, txn=True), transaction_version=2)
    assert run.entry.last_sequence == 10


# --- verification


def test_verification_holds_back_higher_sequences() -> None:
    verification = VerificationStateEntry(0, 12, 0, supports_epoch_bump=False)
    verification.maybe_update_lowest_sequence_and_epoch(10, 0)
    code = refused(info(known(0, 10), verification=verification), batch(11, txn=True))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    info(known(0, 9), verification=verification).append(batch(10, txn=True))


def test_verification_with_version_2_expects_zero_of_a_new_producer() -> None:
    bump = VerificationStateEntry(0, 5, 0, supports_epoch_bump=True)
    old = VerificationStateEntry(0, 5, 0, supports_epoch_bump=False)
    assert refused(info(verification=bump), batch(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    info(verification=bump).append(batch(0))
    info(verification=old).append(batch(5))
    info(known(0, 4), verification=bump).append(batch(5))


def test_the_lowest_sequence_is_kept_per_epoch() -> None:
    entry = VerificationStateEntry(0, 5, 1, supports_epoch_bump=False)
    for sequence, epoch, lowest in [(6, 1, 5), (4, 1, 4), (0, 0, 4), (9, 2, 9), (3, 1, 9)]:
        entry.maybe_update_lowest_sequence_and_epoch(sequence, epoch)
        assert entry.lowest_sequence == lowest
    assert entry.epoch == 2


# --- nothing changes before it is applied


def test_a_refused_append_leaves_the_state_alone() -> None:
    current = known(0, 9, txn=30)
    run = info(current)
    run.append(batch(10, txn=True))
    assert refused(run, batch(12, txn=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert current == known(0, 9, txn=30)


def test_the_last_five_batches_are_remembered() -> None:
    """P3: as many as a producer may have in flight."""
    current = ProducerStateEntry(PID)
    for n in range(8):
        run = info(current)
        run.append(batch(n * 2, 2, offset=n * 2))
        current.update(run.entry)
    assert [metadata.first_sequence for metadata in current.batches] == [6, 8, 10, 12, 14]
    for n in range(8):
        duplicate = current.find_duplicate(batch(n * 2, 2))
        if n < 3:
            assert duplicate is None
        else:
            assert duplicate is not None
            assert duplicate.first_offset == n * 2
    assert current.find_duplicate(batch(14, 1)) is None
    assert current.find_duplicate(batch(15, 1)) is None
    assert current.find_duplicate(batch(14, 2, epoch=1)) is None
    assert current.first_sequence == 6


def test_entries_compare_by_value() -> None:
    assert known(1) == known(1)
    assert known(1) != known(2)
    assert known(1) != "known"
    assert "epoch=1" in repr(known(1))
    empty = ProducerStateEntry(PID)
    assert (empty.first_sequence, empty.last_data_offset) == (-1, -1)
