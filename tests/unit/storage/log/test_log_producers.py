"""Idempotent and transactional producers of a log (P3, P4), over restarts too."""

from pathlib import Path

import pytest

from penstock.core.errors import (
    ErrorCode,
    KafkaError,
)
from penstock.records.append_policy import AppendOrigin
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.log_config import INT_MAX, LogConfig
from tests.support.storage.logs import (
    NOW,
    LogDirectory,
    batch,
    filler,
    marker,
    refused,
    values,
)

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, index_interval_bytes=150)


# --- idempotent producers


def send(log: Log, sequence: int, *data: bytes, producer: int = 7, epoch: int = 0) -> int:
    """Appends as an idempotent producer; the first offset."""
    sent = batch(*data, producer_id=producer, producer_epoch=epoch, sequence=sequence)
    return log.append_as_leader(sent, 0).first_offset


def test_a_duplicate_returns_its_first_offsets(tmp_path: Path) -> None:
    """P3."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"other"), 0)
        sent = [batch(b"a", b"b", producer_id=7, sequence=0) for _ in range(2)]
        first = log.append_as_leader(sent[0], 0)
        again = log.append_as_leader(sent[1], 0)
        assert (first.first_offset, first.last_offset, first.is_duplicate) == (1, 2, False)
        assert (again.first_offset, again.last_offset, again.is_duplicate) == (1, 2, True)
        assert (again.needs_flush, again.has_rolled) == (False, False)
        assert values(log) == [b"other", b"a", b"b"]


def test_the_last_five_batches_are_known(tmp_path: Path) -> None:
    """P3: as many as a producer may have in flight."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        for n in range(6):
            assert send(log, n, b"v") == n
        for n in range(1, 6):
            assert send(log, n, b"v") == n
        error = refused(log, batch(b"v", producer_id=7, sequence=0))
        assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.log_end_offset == 6


def test_a_duplicate_with_log_append_time_returns_the_first_time(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, LogConfig(message_timestamp_type="LogAppendTime")) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a", producer_id=7, sequence=0), 0)
        directory.clock.advance(500)
        again = log.append_as_leader(batch(b"a", producer_id=7, sequence=0), 0)
        assert again.is_duplicate
        assert again.log_append_time == NOW


@pytest.mark.parametrize("sequence", [0, 2, 4, 100])
def test_a_gap_in_the_sequence_is_refused(tmp_path: Path, sequence: int) -> None:
    """P3."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        send(log, 0, b"a", b"b", b"c")
        error = refused(log, batch(b"d", producer_id=7, sequence=sequence))
        assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, 3, b"d") == 3


def test_sequences_wrap(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        send(log, INT_MAX - 1, b"a", b"b")
        assert send(log, 0, b"c") == 2


def test_an_older_producer_epoch_is_fenced(tmp_path: Path) -> None:
    """P3, P4: a zombie."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        send(log, 0, b"a", epoch=3)
        error = refused(log, batch(b"b", producer_id=7, producer_epoch=2, sequence=1))
        assert error.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert send(log, 0, b"b", epoch=4) == 1
        error = refused(log, batch(b"c", producer_id=7, producer_epoch=5, sequence=1))
        assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_do_not_mind_each_other(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        assert send(log, 0, b"a", producer=1) == 0
        assert send(log, 0, b"b", producer=2) == 1
        assert send(log, 1, b"c", producer=1) == 2
        log.append_as_leader(batch(b"plain"), 0)
        assert send(log, 1, b"d", producer=2) == 4


@pytest.mark.parametrize("clean", [True, False])
def test_duplicates_and_gaps_are_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    """P3: from the snapshot after a clean stop, from the log after any other."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(30):
            send(log, 2 * n, b"v" * 30, b"w" * 30)
        assert len(log.local.segments) > 3
        log = directory.reopen(clean=clean)
        assert send(log, 58, b"v" * 30, b"w" * 30) == 58
        assert log.log_end_offset == 60
        error = refused(log, batch(b"x", producer_id=7, sequence=61))
        assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, 60, b"x") == 60


@pytest.mark.parametrize("config", [LogConfig(), SMALL])
def test_batches_that_a_snapshot_has_forgotten_are_found_in_the_log(
    tmp_path: Path, config: LogConfig
) -> None:
    """P3: a producer sends all batches again for which it has no response."""
    with LogDirectory(tmp_path, config) as directory:
        log = directory.open()
        for n in range(8):
            send(log, n, b"v" * 30)
            send(log, n, b"other" * 10, producer=8)
        log = directory.reopen(clean=True)
        for n in range(3, 8):
            again = log.append_as_leader(batch(b"v" * 30, producer_id=7, sequence=n), 0)
            assert (again.first_offset, again.is_duplicate) == (2 * n, True)
        assert log.log_end_offset == 16
        assert send(log, 8, b"v") == 16


def test_a_batch_that_is_not_in_the_log_is_out_of_order_after_a_restart(tmp_path: Path) -> None:
    """An unknown producer may begin with any sequence; what it has not written is no duplicate."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        send(log, 0, b"other", producer=8)
        send(log, 5, b"v")
        log = directory.reopen(clean=True)
        for sequence, epoch in ((4, 0), (5, 1), (7, 0)):
            sent = batch(b"v", producer_id=7, producer_epoch=epoch, sequence=sequence)
            assert refused(log, sent).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.log_end_offset == 2


def test_a_missing_snapshot_is_harmless(tmp_path: Path) -> None:
    """P3, S7: the state is rebuilt from the log."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(30):
            send(log, n, b"v" * 60)
        directory.close()
        for name in directory.names(".snapshot"):
            (directory.path / name).unlink()
        log = directory.open(clean=True, recovery_point=30)
        assert send(log, 29, b"v" * 60) == 29
        assert send(log, 30, b"w") == 30


def test_an_invalid_snapshot_is_harmless(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(30):
            send(log, n, b"v" * 60)
        directory.close()
        for name in directory.names(".snapshot")[1:]:
            (directory.path / name).write_bytes(b"torn")
        log = directory.open(clean=True, recovery_point=30)
        assert send(log, 29, b"v" * 60) == 29
        assert send(log, 30, b"w") == 30


def test_snapshots_are_at_the_starts_of_segments(tmp_path: Path) -> None:
    """S1: and one at the end after a clean stop."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(20):
            send(log, n, b"v" * 60)
        bases = log.local.segments.base_offsets
        assert list(directory.sizes(".snapshot")) == bases[1:]
        directory.close()
        assert list(directory.sizes(".snapshot")) == [*bases[1:], 20]


def test_a_producer_expires(tmp_path: Path) -> None:
    """P3: `producer.id.expiration.ms` after its last record; then any sequence will do."""
    limits = ProducerLimits(producer_id_expiration_ms=1000)
    with LogDirectory(tmp_path, limits=limits) as directory:
        log = directory.open()
        send(log, 0, b"a")
        directory.clock.advance(999)
        log.producers.remove_expired(directory.clock.now_ms())
        current = refused(log, batch(b"b", producer_id=7, sequence=5))
        assert current.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        directory.clock.advance(1)
        log.producers.remove_expired(directory.clock.now_ms())
        assert send(log, 5, b"b") == 1


def test_a_follower_learns_the_producers(tmp_path: Path) -> None:
    """P3, R4: it may lead next."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_follower(batch(b"a", producer_id=7, sequence=4, leader_epoch=0))
        assert send(log, 4, b"a") == 0
        assert send(log, 5, b"b") == 1


# --- transactions


def transact(log: Log, sequence: int, *data: bytes, producer: int = 7) -> int:
    sent = batch(*data, producer_id=producer, sequence=sequence, transactional=True)
    return log.append_as_leader(sent, 0).first_offset


def end(log: Log, *, commit: bool, producer: int = 7, coordinator_epoch: int = 0) -> int:
    sent = marker(producer, commit=commit, coordinator_epoch=coordinator_epoch)
    return log.append_as_leader(sent, 0, origin=AppendOrigin.COORDINATOR).first_offset


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated(tmp_path: Path) -> None:
    """P4."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"before"), 0)
        transact(log, 0, b"a")
        log.append_as_leader(batch(b"after"), 0)
        log.update_high_watermark(3)
        assert log.last_stable_offset == 1
        assert end(log, commit=True) == 3
        assert log.last_stable_offset == 1
        log.update_high_watermark(4)
        assert log.last_stable_offset == 4


def test_an_aborted_transaction_is_indexed(tmp_path: Path) -> None:
    """P4, S1."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        transact(log, 0, b"a", producer=1)
        transact(log, 0, b"b", producer=2)
        end(log, commit=False, producer=2)
        end(log, commit=True, producer=1)
        transact(log, 1, b"c", producer=1)
        end(log, commit=False, producer=1)
        assert directory.sizes(".txnindex") == {0: 2 * 34}
        aborted = log.aborted_transactions(0, 6)
        assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted] == [
            (2, 1, 2),
            (1, 4, 5),
        ]
        assert [txn.last_stable_offset for txn in aborted] == [0, 6]


def test_a_marker_of_an_older_coordinator_is_fenced(tmp_path: Path) -> None:
    """P4."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        transact(log, 0, b"a")
        end(log, commit=True, coordinator_epoch=5)
        with pytest.raises(KafkaError) as error:
            end(log, commit=True, coordinator_epoch=4)
        assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.log_end_offset == 2


def test_no_plain_batch_within_a_transaction(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        transact(log, 0, b"a")
        error = refused(log, batch(b"b", producer_id=7, sequence=1))
        assert error.code is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_has_to_be_verified(tmp_path: Path) -> None:
    """P4: without the coordinator's word a late batch could open a transaction for ever."""
    with LogDirectory(tmp_path, limits=ProducerLimits(verify_transactions=True)) as directory:
        log = directory.open()
        sent = [batch(b"a", producer_id=7, sequence=n, transactional=True) for n in (0, 0, 0, 1)]
        assert refused(log, sent[0]).code is ErrorCode.INVALID_TXN_STATE
        entry = log.producers.maybe_create_verification_state_entry(7, 0, 0, NOW)
        assert refused(log, sent[1]).code is ErrorCode.INVALID_TXN_STATE
        log.append_as_leader(sent[2], 0, verification_guard=entry.guard)
        log.append_as_leader(sent[3], 0)
        assert log.log_end_offset == 2


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_is_open_after_a_restart(tmp_path: Path, clean: bool) -> None:
    """P4, S7."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for _ in range(12):
            log.append_as_leader(filler(100), 0)
        transact(log, 0, b"a")
        for _ in range(12):
            log.append_as_leader(filler(100), 0)
        log.update_high_watermark(log.log_end_offset)
        log = directory.reopen(clean=clean)
        assert log.high_watermark == 25
        assert log.last_stable_offset == 12
        end(log, commit=False)
        log.update_high_watermark(26)
        assert log.last_stable_offset == 26
        assert [txn.first_offset for txn in log.aborted_transactions(0, 26)] == [12]


def test_a_follower_knows_all_aborted_transactions_of_one_append(tmp_path: Path) -> None:
    """The index of a follower, which appends many batches at once, equals that of its leader.

    At the first marker no transaction is open: the one at offset 6 begins later.
    """
    with LogDirectory(tmp_path / "a") as one, LogDirectory(tmp_path / "b") as two:
        leader, follower = one.open(), two.open()
        batches = [
            batch(b"a", base_offset=0, producer_id=1, sequence=0, transactional=True),
            marker(1, commit=False, base_offset=1),
            batch(b"b", base_offset=2, producer_id=1, sequence=1, transactional=True),
            marker(1, commit=False, base_offset=3),
            batch(b"c", base_offset=4, producer_id=2, sequence=0, transactional=True),
        ]
        for data in batches:
            leader.append_as_follower(data)
        follower.append_as_follower(b"".join(batches))
        for log in (leader, follower):
            assert [txn.first_offset for txn in log.aborted_transactions(0, 4)] == [0, 2]
        assert follower.aborted_transactions(0, 5) == leader.aborted_transactions(0, 5)
