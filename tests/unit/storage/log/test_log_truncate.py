"""Truncation of a follower's log (R4), with everything that depends on offsets."""

from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.append_policy import AppendOrigin
from penstock.storage.checkpoint.leader_epoch_cache import EpochEntry
from penstock.storage.log.log import Log
from penstock.storage.log.timestamp_search import offset_for_timestamp, offset_of_max_timestamp
from penstock.storage.log.truncation import begin_full_truncation, begin_truncation
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.timestamp_scan import TimestampAndOffset
from tests.support.storage.logs import NOW, LogDirectory, batch, filler, marker, offsets, values

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, index_interval_bytes=150)


def fill(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(filler(100, timestamp=NOW + 10 * log.log_end_offset), epoch)


@pytest.mark.parametrize("offset", [0, 1, 9, 10, 11, 19, 20, 24])
@pytest.mark.parametrize("clean", [True, False])
def test_everything_from_the_offset_on_is_dropped(tmp_path: Path, offset: int, clean: bool) -> None:
    """In the middle of a segment, at its start, in the active one; and after a restart."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        log.update_high_watermark(25)
        assert begin_truncation(log, offset).complete()
        for _ in range(2):
            assert log.log_end_offset == log.high_watermark == offset
            assert offsets(log) == list(range(offset))
            assert sum(directory.sizes().values()) == log.size == 100 * offset
            log = directory.reopen(clean=clean)
        fill(log, 25 - offset)
        assert offsets(log) == list(range(25))


def test_at_or_beyond_the_end_nothing_happens(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 15)
        log.update_high_watermark(12)
        for offset in (15, 16, 10**9):
            assert not begin_truncation(log, offset).complete()
        assert (log.log_end_offset, log.high_watermark) == (15, 12)
        assert offsets(log) == list(range(15))
        with pytest.raises(ValueError, match="-1"):
            begin_truncation(log, -1).complete()


def test_truncation_within_a_batch_drops_the_whole_batch(tmp_path: Path) -> None:
    """The log ends at the requested offset, so that the leader's next batch fits."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        for _ in range(3):
            log.append_as_leader(batch(*[b"v"] * 5), 0)
        assert begin_truncation(log, 7).complete()
        assert offsets(log) == [0, 1, 2, 3, 4]
        assert log.log_end_offset == 7
        log.append_as_follower(batch(b"w", base_offset=7, leader_epoch=1))
        assert offsets(log) == [0, 1, 2, 3, 4, 7]


def test_the_high_watermark_stays_within_the_log(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        log.update_high_watermark(8)
        begin_truncation(log, 20).complete()
        assert log.high_watermark == 8
        begin_truncation(log, 5).complete()
        assert log.high_watermark == 5


def test_below_the_first_segment_the_log_is_truncated_fully(tmp_path: Path) -> None:
    """A follower that was down for longer than its leader keeps records."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        begin_full_truncation(log, 100).complete()
        fill(log, 15, epoch=3)
        log.update_high_watermark(115)
        assert begin_truncation(log, 50).complete()
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
        assert log.epochs.entries() == []
        assert directory.sizes() == {50: 0}
        fill(log, 2, epoch=4)
        assert offsets(log) == [50, 51]
        log = directory.reopen(clean=False)
        assert (log.log_start_offset, log.log_end_offset) == (50, 52)


def test_below_the_log_start_offset_within_the_first_segment(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 15)
        log.update_high_watermark(15)
        log.increment_log_start_offset(8)
        assert begin_truncation(log, 5).complete()
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
        assert offsets(log) == []
        fill(log, 1)
        assert offsets(log) == [5]


def test_fully(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25, epoch=2)
        log.append_as_leader(batch(b"a", producer_id=7, sequence=0), 2)
        begin_full_truncation(log, 1000).complete()
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000,) * 3
        assert log.recovery_point <= 1000
        assert directory.sizes() == {1000: 0}
        assert directory.names(".snapshot") == []
        assert log.epochs.entries() == []
        assert log.producers.is_empty
        assert log.append_as_leader(batch(b"a"), 5).first_offset == 1000
        log = directory.reopen(clean=True)
        assert offsets(log) == [1000]
        assert log.epochs.entries() == [EpochEntry(5, 1000)]


# --- epochs


def test_epochs_after_truncation(tmp_path: Path) -> None:
    """R4: an epoch whose first record was truncated is dropped, on disk too."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for epoch in (1, 2, 5):
            fill(log, 5, epoch)
        assert log.epochs.entries() == [EpochEntry(1, 0), EpochEntry(2, 5), EpochEntry(5, 10)]
        begin_truncation(log, 10).complete()
        assert log.epochs.entries() == [EpochEntry(1, 0), EpochEntry(2, 5)]
        begin_truncation(log, 7).complete()
        assert log.epochs.entries() == [EpochEntry(1, 0), EpochEntry(2, 5)]
        assert (directory.path / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n2 5\n"
        log.append_as_follower(batch(b"v", base_offset=7, leader_epoch=3))
        log = directory.reopen(clean=False)
        assert log.epochs.entries() == [EpochEntry(1, 0), EpochEntry(2, 5), EpochEntry(3, 7)]


def test_an_epoch_at_the_end_is_dropped_without_truncation(tmp_path: Path) -> None:
    """R4: a leader that never appended may have left one."""
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        fill(log, 5, epoch=1)
        log.epochs.assign(2, 5)
        assert not begin_truncation(log, 5).complete()
        assert log.epochs.entries() == [EpochEntry(1, 0)]


def test_two_replicas_that_diverged_agree_again(tmp_path: Path) -> None:
    """R4: truncate by epoch, then follow; nothing that both had is lost."""
    with (
        LogDirectory(tmp_path / "a", SMALL) as one,
        LogDirectory(tmp_path / "b", SMALL) as two,
    ):
        leader, follower = one.open(), two.open()
        for n in range(12):
            data = batch(b"common %d" % n, base_offset=n, leader_epoch=1)
            leader.append_as_follower(data)
            follower.append_as_follower(data)
        for n in range(5):
            follower.append_as_leader(batch(b"lost %d" % n), 2)
        for n in range(3):
            leader.append_as_leader(batch(b"kept %d" % n), 3)
        requested = follower.epochs.latest_epoch
        assert requested == 2
        response = leader.end_offset_for_epoch(requested)
        assert response is not None
        assert (response.leader_epoch, response.offset) == (1, 12)
        own_end = follower.end_offset_for_epoch(response.leader_epoch)
        assert own_end is not None
        begin_truncation(follower, min(response.offset, own_end.offset)).complete()
        for n in range(3):
            follower.append_as_follower(batch(b"kept %d" % n, base_offset=12 + n, leader_epoch=3))
        assert values(follower) == values(leader)
        assert follower.epochs.entries() == leader.epochs.entries()


# --- producers and transactions


def test_producers_match_the_remaining_log(tmp_path: Path) -> None:
    """P3: truncated batches may be sent again, the others are duplicates."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(25):
            log.append_as_leader(batch(b"v" * 40, producer_id=7, sequence=n), 0)
        begin_truncation(log, 13).complete()
        assert log.append_as_leader(batch(b"v" * 40, producer_id=7, sequence=12), 0).is_duplicate
        with pytest.raises(KafkaError) as gap:
            log.append_as_leader(batch(b"w", producer_id=7, sequence=14), 0)
        assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        again = log.append_as_leader(batch(b"w", producer_id=7, sequence=13), 0)
        assert (again.first_offset, again.is_duplicate) == (13, False)
        assert all(offset <= 13 for offset in directory.sizes(".snapshot"))


def test_a_producer_of_deleted_records_only_is_unknown(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 15)
        log.append_as_leader(batch(b"v", producer_id=7, sequence=0), 0)
        begin_truncation(log, 15).complete()
        assert log.producers.is_empty
        assert log.append_as_leader(batch(b"v", producer_id=7, sequence=0), 0).first_offset == 15


def test_a_transaction_whose_marker_was_truncated_is_open_again(tmp_path: Path) -> None:
    """P4."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 12)
        log.append_as_leader(batch(b"t", producer_id=7, sequence=0, transactional=True), 0)
        fill(log, 12)
        log.append_as_leader(marker(7, commit=False), 0, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(26)
        assert log.last_stable_offset == 26
        assert len(log.aborted_transactions(0, 26)) == 1
        begin_truncation(log, 25).complete()
        assert log.aborted_transactions(0, 25) == []
        assert log.last_stable_offset == 12
        log.append_as_leader(marker(7, commit=True), 0, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(26)
        assert log.last_stable_offset == 26
        assert log.aborted_transactions(0, 26) == []


# --- lookups after truncation


def test_times_after_truncation(tmp_path: Path) -> None:
    """Q5: a truncated record is not found, and its timestamp does not matter any more."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        log.append_as_leader(filler(100, timestamp=NOW + 9999), 0)
        begin_truncation(log, 14).complete()
        assert offset_for_timestamp(log, NOW + 135) is None
        assert offset_of_max_timestamp(log) == TimestampAndOffset(NOW + 130, 13, 0)
        fill(log, 3)
        assert offset_for_timestamp(log, NOW + 135) == TimestampAndOffset(NOW + 140, 14, 0)


def test_the_recovery_point_is_lowered(tmp_path: Path) -> None:
    """S7: the records appended next were never flushed."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 15)
        log.flush()
        assert log.recovery_point == 15
        begin_truncation(log, 12).complete()
        assert log.recovery_point == 12
