"""Loading of a log in any state (S1, S7)."""

import os
import shutil
from pathlib import Path

import pytest

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.storage.checkpoint.leader_epoch_cache import EpochEntry
from penstock.storage.log.timestamp_search import offset_for_timestamp
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.timestamp_scan import TimestampAndOffset
from tests.support.storage.logs import (
    NOW,
    CountingDisk,
    LogDirectory,
    batch,
    filler,
    offsets,
    old_message,
    values,
)
from tests.support.storage.stopped_logs import COMPACT, SMALL, fill, flip, stopped

# --- an empty directory, a clean stop


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 0)
        assert log.recovery_point == 0
        assert directory.names() == [f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex"]


def test_a_log_that_must_start_later(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open(log_start_offset=500)
        assert (log.log_start_offset, log.log_end_offset) == (500, 500)
        assert list(directory.sizes()) == [500]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_changes_nothing(tmp_path: Path, clean: bool) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for epoch in range(5):
            fill(log, 5, epoch)
        log.update_high_watermark(22)
        before = (offsets(log), values(log), log.epochs.entries(), log.local.segments.base_offsets)
        for _ in range(2):
            log = directory.reopen(clean=clean)
            after = (
                offsets(log),
                values(log),
                log.epochs.entries(),
                log.local.segments.base_offsets,
            )
            assert after == before
            assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 22, 25)
        fill(log, 1, 5)
        assert offsets(log)[-1] == 25


def test_after_a_clean_stop_no_record_is_read(tmp_path: Path) -> None:
    """S7: but for the way from the last index entry to the end."""
    disk = CountingDisk()
    with LogDirectory(tmp_path, SMALL, disk=disk) as directory:
        stopped(directory, 95, clean=True)
        disk.read.clear()
        log = directory.open(clean=True, recovery_point=95)
        assert log.log_end_offset == log.recovery_point == 95
        sealed = [size for name, size in disk.read.items() if not name.startswith(f"{90:020d}")]
        assert sum(sealed) == 0
        assert disk.read[f"{90:020d}.log"] <= 500


def test_after_a_clean_stop_the_recovery_point_is_the_end(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 25, clean=True)
        log = directory.open(clean=True, recovery_point=3)
        assert log.recovery_point == 25


def test_after_any_other_stop_only_a_flush_moves_the_recovery_point(tmp_path: Path) -> None:
    """S7: the records may be in the page cache only; a second crash would lose them."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 25)
        log = directory.open(recovery_point=13)
        assert log.recovery_point == 13
        assert log.is_flush_due
        log.flush()
        assert log.recovery_point == 25
        directory.crash()
        assert directory.open(recovery_point=99).recovery_point == 25


@pytest.mark.parametrize(
    ("high_watermark", "expected"), [(0, 4), (4, 4), (17, 17), (25, 25), (1000, 25)]
)
def test_the_high_watermark_is_kept_within_the_log(
    tmp_path: Path, high_watermark: int, expected: int
) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 25)
        log = directory.open(log_start_offset=4, high_watermark=high_watermark)
        assert log.high_watermark == expected


# --- a torn end


@pytest.mark.parametrize("remaining", [1, 11, 12, 16, 17, 60, 61, 99])
def test_a_torn_batch_is_truncated(tmp_path: Path, remaining: int) -> None:
    """S7: to the last whole batch."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 15)
        path = directory.file(10)
        path.write_bytes(path.read_bytes()[: 400 + remaining])
        log = directory.open()
        assert log.log_end_offset == 14
        assert offsets(log) == list(range(14))
        assert path.stat().st_size == 400
        fill(log, 3)
        assert offsets(log) == list(range(17))


@pytest.mark.parametrize(
    "rest",
    [b"\0" * 700, b"\0", b"garbage" * 30, b"\xff" * 61, bytes(filler(100, base_offset=3))],
    ids=["zeros", "zero", "text", "ones", "late batch"],
)
def test_invalid_batches_are_truncated(tmp_path: Path, rest: bytes) -> None:
    """S7: zeros of preallocated space, garbage, a batch with a lower offset."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 15)
        with directory.file(10).open("ab") as file:
            file.write(rest)
        log = directory.open()
        assert offsets(log) == list(range(15))
        assert directory.sizes() == {0: 1000, 10: 500}


@pytest.mark.parametrize("position", [3, 8, 12, 16, 17, 21, 30, 57, 70, 99])
def test_a_batch_with_one_wrong_byte_ends_the_log(tmp_path: Path, position: int) -> None:
    """S7: the CRC covers what the header check does not; the leader epoch is in neither."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 15)
        flip(directory.file(10), 200 + position)
        log = directory.open()
        assert offsets(log) == list(range(15 if position == 12 else 12))


def test_a_preallocated_log_after_a_crash(tmp_path: Path) -> None:
    """S6, S7: its active file has its full size, with zeros behind the batches."""
    config = LogConfig(segment_bytes=1000, segment_index_bytes=1200, preallocate=True)
    with LogDirectory(tmp_path, config) as directory:
        stopped(directory, 15)
        assert directory.sizes() == {0: 1000, 10: 1000}
        log = directory.open()
        assert offsets(log) == list(range(15))
        fill(log, 10)
        assert offsets(log) == list(range(25))


def test_segments_after_a_loss_are_dropped(tmp_path: Path) -> None:
    """S7: nothing after a hole is of use, the leader will send it again."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 35)
        flip(directory.file(10), 450)
        log = directory.open()
        assert offsets(log) == list(range(14))
        assert directory.sizes() == {0: 1000, 10: 400}
        assert all(offset <= 14 for offset in directory.sizes(".snapshot"))
        fill(log, 3)
        assert offsets(log) == list(range(17))


def test_a_segment_that_lost_its_end_is_a_loss_too(tmp_path: Path) -> None:
    """S7: the file system may have written a later file before the end of an earlier one."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 35)
        path = directory.file(10)
        path.write_bytes(path.read_bytes()[:400])
        assert offsets(directory.open()) == list(range(14))


def test_gaps_of_compaction_are_not_a_loss(tmp_path: Path) -> None:
    """S5, S7."""
    with LogDirectory(tmp_path, COMPACT) as directory:
        log = directory.open()
        for offset in (0, 5, 9, 30, 31, 70):
            log.append_as_follower(filler(500, base_offset=offset))
        directory.crash()
        log = directory.open()
        assert offsets(log) == [0, 5, 9, 30, 31, 70]
        assert len(log.local.segments) == 3


def test_gaps_in_flushed_records_are_not_a_loss(tmp_path: Path) -> None:
    """S7: flushed records are never dropped, whatever their offsets are."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for offset in (0, 5, 9, 30, 31, 70):
            log.append_as_follower(filler(500, base_offset=offset))
        log.flush()
        log = directory.reopen(clean=False)
        assert offsets(log) == [0, 5, 9, 30, 31, 70]


def test_an_offset_too_far_from_its_segment_is_not_truncated(tmp_path: Path) -> None:
    """S1, S7: the batch is valid; old brokers wrote such segments, and their records are kept."""
    with LogDirectory(tmp_path) as directory:
        directory.path.mkdir()
        content = bytes(filler(100)) + bytes(filler(100, base_offset=2**31))
        directory.file(0).write_bytes(content)
        directory.file(2**32).write_bytes(bytes(filler(100, base_offset=2**32)))
        with pytest.raises(KafkaStorageError, match=r"2147483648.*Start a newer Apache Kafka"):
            directory.open()
        assert directory.file(0).read_bytes() == content


# --- the recovery point


def test_flushed_segments_are_not_read_again(tmp_path: Path) -> None:
    """S7: recovery reads what was written since the last flush, not the whole log."""
    disk = CountingDisk()
    with LogDirectory(tmp_path, SMALL, disk=disk) as directory:
        log = directory.open()
        fill(log, 85)
        log.flush()
        fill(log, 10)
        directory.crash()
        disk.read.clear()
        log = directory.open(recovery_point=85)
        assert log.log_end_offset == 95
        read = {int(name[:20]) for name, size in disk.read.items() if size and ".log" in name}
        assert read == {80, 90}


def test_damage_in_flushed_records_is_not_repaired(tmp_path: Path) -> None:
    """S7: a bad byte there affects its batch when it is read, and not the later ones."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 35)
        flip(directory.file(0), 450)
        log = directory.open(recovery_point=20)
        assert log.log_end_offset == 35
        assert directory.sizes() == {0: 1000, 10: 1000, 20: 1000, 30: 500}


def test_a_recovery_point_beyond_the_end(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 15)
        path = directory.file(10)
        path.write_bytes(path.read_bytes()[:450])
        log = directory.open(recovery_point=500)
        assert log.log_end_offset == log.recovery_point == 14


# --- log start offset


def test_a_log_start_offset_beyond_the_end(tmp_path: Path) -> None:
    """S7: segment files are missing, so the remaining records must not be served."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 25)
        log = directory.open(log_start_offset=100, recovery_point=100, high_watermark=100)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
        assert directory.sizes() == {100: 0}
        assert log.epochs.entries() == []
        assert directory.names(".snapshot") == []
        fill(log, 1, 3)
        assert offsets(log) == [100]


def test_a_log_start_offset_below_the_first_segment(tmp_path: Path) -> None:
    """S4: retention deleted segments after the checkpoint was written."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 25)
        for kind in (".log", ".index", ".timeindex"):
            directory.file(0, kind).unlink()
        log = directory.open(log_start_offset=3)
        assert log.log_start_offset == 10
        assert offsets(log) == list(range(10, 25))
        assert log.epochs.entries() == [EpochEntry(0, 10)]


# --- epochs


def test_epochs_are_restored_from_the_records(tmp_path: Path) -> None:
    """R4: the file may be lost; a follower must still get the end of each epoch."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for epoch in (1, 4, 6):
            fill(log, 8, epoch)
        expected = [EpochEntry(1, 0), EpochEntry(4, 8), EpochEntry(6, 16)]
        assert log.epochs.entries() == expected
        log.epochs.flush()
        directory.crash()
        (directory.path / "leader-epoch-checkpoint").unlink()
        assert directory.open().epochs.entries() == expected


def test_epochs_of_truncated_records_are_dropped(tmp_path: Path) -> None:
    """R4."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 12, 1)
        fill(log, 1, 2)
        directory.crash()
        path = directory.file(10)
        path.write_bytes(path.read_bytes()[:250])
        log = directory.open()
        assert log.epochs.entries() == [EpochEntry(1, 0)]
        assert (directory.path / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


# --- producers


def test_producers_of_records_that_were_cut_off_are_forgotten(tmp_path: Path) -> None:
    """P3, S7: the producer sends them again."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(20):
            log.append_as_leader(batch(b"v" * 40, producer_id=7, sequence=n), 0)
        base = log.local.segments.active.base_offset
        directory.crash()
        path = directory.file(base)
        path.write_bytes(path.read_bytes()[:-5])
        log = directory.open()
        assert log.log_end_offset == 19
        again = log.append_as_leader(batch(b"v" * 40, producer_id=7, sequence=19), 0)
        assert (again.first_offset, again.is_duplicate) == (19, False)


def test_after_a_crash_the_last_five_batches_of_a_producer_are_known(tmp_path: Path) -> None:
    """P3, S7: a producer with five batches in flight when the broker died sends all of them again.

    A snapshot has only the last one; the state that recovery replayed must be kept.
    """
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        for n in range(8):
            log.append_as_leader(batch(b"v", producer_id=7, sequence=n), 0)
        directory.crash()
        log = directory.open()
        for n in range(3, 8):
            again = log.append_as_leader(batch(b"v", producer_id=7, sequence=n), 0)
            assert (again.first_offset, again.is_duplicate) == (n, True)
        assert log.log_end_offset == 8


def test_stray_snapshots_are_removed(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 25, clean=True)
        for offset in (3, 17):
            shutil.copy(directory.file(25, ".snapshot"), directory.file(offset, ".snapshot"))
        directory.open(clean=True, recovery_point=25)
        assert list(directory.sizes(".snapshot")) == [10, 20, 25]


# --- old formats


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
def test_old_segments_are_opened(tmp_path: Path, magic: int, clean: bool) -> None:
    """S1: as Kafka before 0.11 wrote them, without a snapshot, and v0 without a time index."""
    with LogDirectory(tmp_path, SMALL) as directory:
        directory.path.mkdir()
        for base in (0, 10):
            directory.file(base).write_bytes(
                b"".join(
                    old_message(n, b"value %d" % n, magic=magic, timestamp=NOW + n)
                    for n in range(base, base + 10)
                )
            )
        log = directory.open(clean=clean)
        assert values(log) == [b"value %d" % n for n in range(20)]
        assert log.epochs.entries() == []
        record = offset_for_timestamp(log, NOW + 13)
        assert record == (TimestampAndOffset(NOW + 13, 13, -1) if magic else None)
        log.append_as_leader(batch(b"new"), 1)
        assert values(log)[-1] == b"new"


def test_a_broken_old_message_is_cut_off(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        directory.path.mkdir()
        messages = [old_message(n, b"value") for n in range(5)]
        directory.file(0).write_bytes(b"".join(messages))
        flip(directory.file(0), 3 * len(messages[0]) + 20)
        assert offsets(directory.open()) == [0, 1, 2]


# --- foreign files


def test_a_log_that_cannot_be_loaded_closes_its_files(tmp_path: Path) -> None:
    """It stays offline while the broker runs on, and may have thousands of them."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 95, clean=True)
        with directory.file(90).open("ab") as file:
            file.write(b"garbage")
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(KafkaError):
            directory.open(clean=True, recovery_point=95)
        assert len(os.listdir("/proc/self/fd")) == before


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 5, clean=True)
        (directory.path / "notes.txt").write_text("keep me")
        (directory.path / "1.log").write_text("keep me")
        log = directory.open(clean=True, recovery_point=5)
        assert offsets(log) == list(range(5))
        assert (directory.path / "notes.txt").read_text() == "keep me"
        assert (directory.path / "1.log").read_text() == "keep me"


def test_a_file_with_a_suffix_of_ours_and_no_offset(tmp_path: Path) -> None:
    """It may be somebody's work, so the error has the remedy."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 5, clean=True)
        (directory.path / "backup.cleaned").write_text("?")
        with pytest.raises(KafkaError, match=r"backup\.cleaned.*remove it"):
            directory.open(clean=True, recovery_point=5)
