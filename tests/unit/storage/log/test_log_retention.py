"""Retention, DeleteRecords, and the removal of files (S4)."""

from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode, KafkaStorageError, OffsetOutOfRangeError
from penstock.records.batch import read_header
from penstock.storage.checkpoint.leader_epoch_cache import EpochEntry
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.replacement import begin_replacement
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment
from tests.support.storage.logs import (
    NOW,
    LogDirectory,
    batch,
    filler,
    offsets,
    remove_deleted_segments,
    values,
)

HOUR = 60 * 60 * 1000
KEEP = LogConfig(segment_bytes=1000, segment_index_bytes=1200, retention_ms=-1)


def config(**changes: int | frozenset[str]) -> LogConfig:
    """Returns settings with segments of 1000 bytes and no other retention."""
    settings = {"segment_bytes": 1000, "segment_index_bytes": 1200, "retention_ms": -1, **changes}
    return LogConfig(**settings)  # type: ignore[arg-type]


def fill(log: Log, count: int, *, step_ms: int = 0) -> None:
    """Batches of one record and 100 bytes, ten in a segment; all below the high watermark."""
    for _ in range(count):
        offset = log.log_end_offset
        log.append_as_leader(filler(100, timestamp=NOW + step_ms * offset), 0)
    log.update_high_watermark(log.log_end_offset)


def deleted(log: Log) -> list[int]:
    """Base offsets of the segments that go now."""
    return [deletion.segment.base_offset for deletion in delete_old_segments(log)]


def bases(log: Log) -> list[int]:
    return log.local.segments.base_offsets


# --- by time


def test_segments_go_when_their_last_record_is_too_old(tmp_path: Path) -> None:
    """S4: `retention.ms`, by the largest timestamp in a segment."""
    with LogDirectory(tmp_path, config(retention_ms=HOUR)) as directory:
        log = directory.open()
        fill(log, 25, step_ms=1000)
        directory.clock.advance(HOUR + 9000)
        assert deleted(log) == []
        directory.clock.advance(1)
        assert deleted(log) == [0]
        assert (log.log_start_offset, bases(log)) == (10, [10, 20])
        assert offsets(log) == list(range(10, 25))
        directory.clock.advance(10_000)
        reasons = delete_old_segments(log)
        assert [(reason.segment.base_offset, reason.reason) for reason in reasons] == [
            (10, "older than retention.ms 3600000")
        ]


def test_one_late_record_keeps_its_segment_and_those_after_it(tmp_path: Path) -> None:
    """S4: from the oldest on; a young segment protects the older ones after it."""
    with LogDirectory(tmp_path, config(retention_ms=HOUR)) as directory:
        log = directory.open()
        fill(log, 5)
        log.append_as_leader(filler(100, timestamp=NOW + HOUR), 0)
        fill(log, 20)
        directory.clock.advance(HOUR + 1)
        assert deleted(log) == []
        directory.clock.advance(HOUR)
        assert deleted(log) == [0, 10, 20]


def test_the_active_segment_is_deleted_when_all_its_records_are_old(tmp_path: Path) -> None:
    """S4: the log rolls first, so that there is always an active segment."""
    with LogDirectory(tmp_path, config(retention_ms=HOUR)) as directory:
        log = directory.open()
        fill(log, 15)
        directory.clock.advance(HOUR + 1)
        assert deleted(log) == [0, 10]
        assert bases(log) == [15]
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (15, 15, 15)
        assert deleted(log) == [], "an empty segment is kept for the next record"
        assert log.append_as_leader(batch(b"next"), 0).first_offset == 15
        assert values(log) == [b"next"]


def test_records_without_time_go_by_the_files_time(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, config(retention_ms=HOUR)) as directory:
        log = directory.open()
        for _ in range(12):
            log.append_as_leader(filler(100, timestamp=-1), 0)
        log.update_high_watermark(12)
        log.local.segments.first.set_modified_ms(NOW)
        log.local.segments.active.set_modified_ms(NOW + HOUR)
        directory.clock.advance(HOUR)
        assert deleted(log) == []
        directory.clock.advance(1)
        assert deleted(log) == [0]


def test_retention_ms_of_minus_1_keeps_for_ever_and_0_keeps_nothing_old(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 15)
        directory.clock.advance(10**12)
        assert deleted(log) == []
        log.config = config(retention_ms=0)
        assert deleted(log) == [0, 10]


def test_timestamps_in_the_future_are_kept(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, config(retention_ms=HOUR)) as directory:
        log = directory.open()
        log.append_as_follower(filler(100, timestamp=NOW + 10**11))
        fill(log, 12)
        directory.clock.advance(10 * HOUR)
        assert deleted(log) == []


# --- by size


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(3500, []), (2501, []), (2500, [0]), (1501, [0]), (1500, [0, 10]), (501, [0, 10])],
)
def test_segments_are_deleted_while_enough_bytes_remain(
    tmp_path: Path, limit: int, expected: list[int]
) -> None:
    """S4: at least `retention.bytes` remain."""
    with LogDirectory(tmp_path, config(retention_bytes=limit)) as directory:
        log = directory.open()
        fill(log, 35)
        assert deleted(log) == expected
        assert log.size >= limit


def test_retention_by_size_deletes_the_active_segment_too(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, config(retention_bytes=0)) as directory:
        log = directory.open()
        fill(log, 15)
        assert deleted(log) == [0, 10]
        assert bases(log) == [15]


def test_size_and_time_together(tmp_path: Path) -> None:
    settings = config(retention_bytes=3000, retention_ms=HOUR)
    with LogDirectory(tmp_path, settings) as directory:
        log = directory.open()
        fill(log, 45, step_ms=60_000)
        directory.clock.advance(HOUR + 20 * 60_000)
        reasons = [deletion.reason for deletion in delete_old_segments(log)]
        assert reasons == ["beyond retention.bytes 3000", "older than retention.ms 3600000"]
        assert bases(log) == [20, 30, 40]


# --- records that must be kept


@pytest.mark.parametrize(
    ("high_watermark", "expected"), [(9, []), (10, [0]), (19, [0]), (20, [0, 10]), (24, [0, 10])]
)
def test_never_above_the_high_watermark(
    tmp_path: Path, high_watermark: int, expected: list[int]
) -> None:
    """R2: records that followers may still fetch are kept."""
    with LogDirectory(tmp_path, config(retention_bytes=0)) as directory:
        log = directory.open()
        fill(log, 25)
        log.update_high_watermark(high_watermark)
        assert deleted(log) == expected
        assert log.log_start_offset <= log.high_watermark


@pytest.mark.parametrize("policy", [frozenset({"compact"}), frozenset[str]()])
def test_without_delete_in_its_policy_only_the_start_offset_counts(
    tmp_path: Path, policy: frozenset[str]
) -> None:
    """S4, S5."""
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 25)
        log.config = config(retention_bytes=0, retention_ms=0, cleanup_policy=policy)
        directory.clock.advance(10 * HOUR)
        assert deleted(log) == []
        log.increment_log_start_offset(11)
        assert deleted(log) == [0]


def test_compact_and_delete_does_both(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 25)
        log.config = config(retention_bytes=0, cleanup_policy=frozenset({"compact", "delete"}))
        assert deleted(log) == [0, 10, 20]


# --- DeleteRecords


def test_the_log_start_offset_rises(tmp_path: Path) -> None:
    """S4: at once for readers; whole segments below it go with the next check."""
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 25)
        assert log.increment_log_start_offset(13)
        assert log.log_start_offset == 13
        assert offsets(log) == list(range(13, 25))
        with pytest.raises(OffsetOutOfRangeError):
            log.read(12, 1000, FetchIsolation.LOG_END)
        assert bases(log) == [0, 10, 20]
        (deletion,) = delete_old_segments(log)
        assert deletion.reason == "below the log start offset 13"
        assert bases(log) == [10, 20]
        assert log.log_start_offset == 13


def test_the_log_start_offset_never_falls(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 25)
        log.increment_log_start_offset(13)
        assert not log.increment_log_start_offset(13)
        assert not log.increment_log_start_offset(5)
        assert log.log_start_offset == 13


def test_not_above_the_high_watermark(tmp_path: Path) -> None:
    """S4: OFFSET_OUT_OF_RANGE, as in Kafka's response to DeleteRecords."""
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 25)
        log.update_high_watermark(20)
        with pytest.raises(OffsetOutOfRangeError, match="high watermark is 20") as error:
            log.increment_log_start_offset(21)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.log_start_offset == 0
        assert log.increment_log_start_offset(20)


def test_everything_can_be_deleted(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 25)
        log.increment_log_start_offset(25)
        assert deleted(log) == [0, 10]
        assert bases(log) == [20], "the active segment stays: it ends where the log starts"
        assert offsets(log) == []
        fill(log, 1)
        assert offsets(log) == [25]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_start_offset_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    """S4, S7: from its checkpoint, within a segment."""
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 25)
        log.increment_log_start_offset(13)
        log = directory.reopen(clean=clean)
        assert log.log_start_offset == 13
        assert offsets(log) == list(range(13, 25))


def test_epochs_follow_the_log_start_offset(tmp_path: Path) -> None:
    """R4: an epoch without records is dropped, one that lost some starts later."""
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        for epoch in (1, 2, 3):
            for _ in range(5):
                log.append_as_leader(filler(100), epoch)
        log.update_high_watermark(15)
        log.increment_log_start_offset(7)
        assert log.epochs.entries() == [EpochEntry(2, 7), EpochEntry(3, 10)]
        assert log.recovery_point == 0, "only a flush moves it (S7)"
        log.increment_log_start_offset(10)
        assert log.epochs.entries() == [EpochEntry(3, 10)]


def test_a_producer_is_known_after_its_records_were_deleted(tmp_path: Path) -> None:
    """P3: retention must not make a producer's next batch invalid."""
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a", b"b", producer_id=7, sequence=0), 0)
        fill(log, 25)
        log.increment_log_start_offset(21)
        assert deleted(log) != []
        for clean in (True, False):
            again = batch(b"a", b"b", producer_id=7, sequence=0)
            assert log.append_as_leader(again, 0).is_duplicate
            log = directory.reopen(clean=clean)


# --- files


def test_replaced_segments_lose_their_snapshots(tmp_path: Path) -> None:
    """S5: that of a segment which has a successor stays."""
    with LogDirectory(tmp_path, KEEP) as directory:
        log = directory.open()
        fill(log, 35)
        new = LogSegment(
            OsDisk(), str(directory.path), 10, KEEP, NOW, create=True, suffix=".cleaned"
        )
        data = filler(100, base_offset=14)
        new.append(data, [read_header(data)])
        new.seal()
        begin_replacement(log, [new], log.local.segments.between(10, 30)).complete()
        assert bases(log) == [0, 10, 30]
        assert offsets(log) == [*range(10), 14, *range(30, 35)]
        assert list(directory.sizes(".snapshot")) == [10, 30]
        directory.clock.advance(60_000)
        assert remove_deleted_segments(log) == 2


def test_files_are_removed_after_their_delay(tmp_path: Path) -> None:
    """S4: `file.delete.delay.ms`; the snapshot of a segment is removed with it."""
    settings = config(retention_bytes=1000, file_delete_delay_ms=500)
    with LogDirectory(tmp_path, settings) as directory:
        log = directory.open()
        fill(log, 35)
        assert deleted(log) == [0, 10]
        assert list(directory.sizes()) == [20, 30]
        assert list(directory.sizes(".log.deleted")) == [0, 10]
        assert list(directory.sizes(".snapshot")) == [20, 30]
        directory.clock.advance(499)
        assert remove_deleted_segments(log) == 0
        directory.clock.advance(1)
        assert remove_deleted_segments(log) == 2
        assert directory.names(".deleted") == []


def test_files_that_wait_are_removed_by_a_restart(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, config(retention_bytes=1000)) as directory:
        log = directory.open()
        fill(log, 35)
        assert deleted(log) == [0, 10]
        log = directory.reopen(clean=False)
        assert directory.names(".deleted") == []
        assert (log.log_start_offset, log.log_end_offset) == (20, 35)


def test_a_failed_log_deletes_nothing(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, config(retention_bytes=0)) as directory:
        log = directory.open()
        fill(log, 25)
        log.guard.stop(KafkaStorageError("the disk is gone"))
        with pytest.raises(KafkaStorageError, match="gone"):
            delete_old_segments(log)
        assert bases(log) == [0, 10, 20]
