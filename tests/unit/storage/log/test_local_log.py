"""The segment files of a log: rolled, truncated, deleted, replaced, flushed (S1, S3, S5, S6)."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.buffers import Buffer
from penstock.records.batch import split
from penstock.storage.disk import Disk, OsDisk
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log.local_log import LocalLog
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.segment.log_segments import LogSegments
from penstock.storage.staged_operation import StagedOperation
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.logs import NOW, batch, batches_in, filler, remove_deleted

CONFIG = LogConfig(
    segment_bytes=1000, segment_index_bytes=240, index_interval_bytes=150, file_delete_delay_ms=500
)


def make(disk: Disk, directory: str, config: LogConfig = CONFIG) -> LocalLog:
    disk.make_directory(directory)
    segments = LogSegments()
    segment = LogSegment(disk, directory, 0, config, NOW, create=True)
    segments.add(segment)
    return LocalLog(disk, directory, config, segments, 0, 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    log = make(OsDisk(), str(tmp_path))
    yield log
    log.close_handlers()


def append(log: LocalLog, data: Buffer) -> None:
    log.append(log.segments.active, data, [header for _, header in split(data)])


def fill(log: LocalLog, count: int, *, per_segment: int = 5) -> None:
    """Appends batches of one record and 100 bytes, `per_segment` in each segment."""
    for offset in range(log.next_offset, log.next_offset + count):
        if offset and offset % per_segment == 0:
            log.roll(offset, NOW)
        append(log, filler(100, base_offset=offset))


def offsets_at(
    log: LocalLog, offset: int, max_bytes: int = 10**6, bound: int = 10**9
) -> list[int] | None:
    data = log.read(offset, max_bytes, bound, min_one=True)
    return None if data is None else [h.base_offset for _, _, h in batches_in(data[0])]


def names(directory: Path, suffix: str) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.iterdir() if path.name.endswith(suffix))


# --- append and read


def test_the_end_offset_follows_the_last_batch(log: LocalLog) -> None:
    append(log, batch(b"a", b"b"))
    assert log.next_offset == 2
    append(log, bytearray(batch(b"c", base_offset=2) + batch(b"d", base_offset=7)))
    assert log.next_offset == 8


def test_a_read_stays_within_a_segment(log: LocalLog) -> None:
    """Its result is one range of one file, for sendfile (S6)."""
    fill(log, 12)
    assert offsets_at(log, 0) == [0, 1, 2, 3, 4]
    assert offsets_at(log, 4) == [4]
    assert offsets_at(log, 5) == [5, 6, 7, 8, 9]
    assert offsets_at(log, 11) == [11]
    assert offsets_at(log, 12) is None


@pytest.mark.parametrize("bound", range(13))
def test_a_read_ends_before_the_bound(log: LocalLog, bound: int) -> None:
    fill(log, 12)
    for offset in range(12):
        last = min(bound, (offset // 5 + 1) * 5)
        result = offsets_at(log, offset, bound=bound)
        assert (result or []) == list(range(offset, last))


def test_a_batch_across_the_bound_is_left_out(log: LocalLog) -> None:
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d", b"e", b"f", base_offset=3))
    assert offsets_at(log, 0, bound=5) == [0]
    assert offsets_at(log, 0, bound=3) == [0]
    assert offsets_at(log, 0, bound=6) == [0, 3]


def test_a_hole_at_the_end_of_a_segment_leads_to_the_next(log: LocalLog) -> None:
    """S5: compaction may have removed the last batches of a segment, or all of it."""
    append(log, batch(b"a"))
    log.roll(10, NOW)
    log.roll(20, NOW)
    append(log, batch(b"b", base_offset=25))
    for offset in (1, 9, 10, 19, 20, 25):
        assert offsets_at(log, offset) == [25]
    assert offsets_at(log, 1, bound=25) in (None, [])
    assert offsets_at(log, 1, bound=15) is None


def test_a_failed_write_leaves_no_half_batch() -> None:
    """S7, P7: a full disk tears the write; earlier batches are unchanged."""
    disk = CrashDisk()
    log = make(disk, "/d")
    append(log, batch(b"first"))
    size = log.segments.active.size
    fault = disk.fail("write", "*.log", errno.ENOSPC, partial=20)
    with pytest.raises(OSError, match=r"space"):
        append(log, batch(b"second", base_offset=1))
    assert fault.calls == 1
    assert (log.next_offset, log.segments.active.size) == (1, size)
    assert disk.size("/d/00000000000000000000.log") == size
    disk.heal()
    append(log, batch(b"third", base_offset=1))
    assert offsets_at(log, 0) == [0, 1]


def test_a_torn_write_that_cannot_be_truncated() -> None:
    disk = CrashDisk()
    log = make(disk, "/d")
    append(log, batch(b"first"))
    disk.fail("write", "*.log", errno.EIO, partial=20)
    disk.fail("truncate", "*.log", errno.EIO)
    with pytest.raises(OSError, match="error"):
        append(log, batch(b"second", base_offset=1))
    assert offsets_at(log, 0) == [0]


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_index_without_room_gets_the_entry_of_a_later_batch(kind: str) -> None:
    disk = CrashDisk()
    log = make(disk, "/d")
    for offset in range(2):
        append(log, filler(100, base_offset=offset))
    disk.fail("reserve", f"*.{kind}", errno.ENOSPC)
    for offset in range(2, 4):
        append(log, filler(100, base_offset=offset))
    assert offsets_at(log, 0) == [0, 1, 2, 3]
    active = log.segments.active
    entries = active.indexes.offset_index.entries, active.indexes.time_index.entries
    disk.heal()
    for offset in range(4, 8):
        append(log, filler(100, base_offset=offset))
    active = log.segments.active
    assert (active.indexes.offset_index.entries, active.indexes.time_index.entries) > entries
    for offset in range(8):
        assert (offsets_at(log, offset) or [])[0] == offset


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_index_that_cannot_grow_leaves_no_batch_behind(kind: str) -> None:
    """P7: the batch was written but not accepted, so no reader may see it."""
    disk = CrashDisk()
    log = make(disk, "/d")
    for offset in range(2):
        append(log, filler(100, base_offset=offset))
    disk.fail("reserve", f"*.{kind}", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        append(log, filler(100, base_offset=2))
    assert log.next_offset == 2
    assert offsets_at(log, 0) == [0, 1]
    assert disk.size("/d/00000000000000000000.log") == 200


# --- roll


def test_roll_seals_and_starts_at_the_end(log: LocalLog, tmp_path: Path) -> None:
    """S1, S3."""
    fill(log, 3)
    segment = log.roll(3, NOW + 1, roll_jitter_ms=7)
    assert log.segments.base_offsets == [0, 3]
    assert log.segments.active is segment
    assert segment.roll_jitter_ms == 7
    assert log.next_offset == 3
    sealed = tmp_path / f"{0:020d}.index"
    assert sealed.stat().st_size == 8 * log.segments.first.indexes.offset_index.entries
    assert (tmp_path / f"{3:020d}.index").stat().st_size == 240


def test_roll_beyond_the_end_moves_the_end(log: LocalLog) -> None:
    """A follower's leader may have compacted the offsets between."""
    fill(log, 3)
    log.roll(50, NOW)
    assert log.next_offset == 50
    append(log, batch(b"a", base_offset=50))
    assert offsets_at(log, 3) == [50]


def test_roll_of_an_empty_segment_at_its_own_offset(log: LocalLog) -> None:
    """Its index may be too small for a single entry; Kafka recreates it."""
    fill(log, 5)
    first = log.roll(5, NOW)
    second = log.roll(5, NOW + 1, roll_jitter_ms=7)
    assert first is second
    assert second.roll_jitter_ms == 7
    log.config = replace(log.config, segment_index_bytes=48)
    log.roll(5, NOW + 2)
    assert (second.indexes.offset_index.length, second.indexes.time_index.length) == (48, 48)
    assert log.segments.base_offsets == [0, 5]
    append(log, batch(b"a", base_offset=5))
    assert offsets_at(log, 5) == [5]


def test_a_roll_below_the_log_end_is_refused(log: LocalLog) -> None:
    fill(log, 12)
    for offset in (0, 5, 11):
        with pytest.raises(ValueError, match="overlap"):
            log.roll(offset, NOW)
    assert log.segments.base_offsets == [0, 5, 10]


def test_roll_over_files_that_were_left_behind(log: LocalLog, tmp_path: Path) -> None:
    """They belong to no segment: their batches and index entries must not appear."""
    fill(log, 3)
    (tmp_path / f"{3:020d}.log").write_bytes(filler(500, base_offset=3))
    (tmp_path / f"{3:020d}.index").write_bytes(b"\0\0\0\1\0\0\0\7" * 4)
    (tmp_path / f"{3:020d}.timeindex").write_bytes(b"\0" * 24)
    (tmp_path / f"{3:020d}.txnindex").write_bytes(b"\0" * 34)
    segment = log.roll(3, NOW)
    assert segment.size == 0
    assert segment.indexes.offset_index.entries == segment.indexes.time_index.entries == 0
    assert segment.indexes.txn_index.all() == []


# --- truncate


def test_truncate_removes_segments_and_truncates_one(log: LocalLog, tmp_path: Path) -> None:
    fill(log, 18)
    removed = StagedOperation(log.truncate_to(7, NOW)).complete()
    assert [segment.base_offset for segment in removed] == [10, 15]
    assert log.segments.base_offsets == names(tmp_path, ".log") == [0, 5]
    assert log.next_offset == 7
    assert offsets_at(log, 5) == [5, 6]
    append(log, filler(100, base_offset=7))
    assert offsets_at(log, 5) == [5, 6, 7]


def test_truncate_at_the_start_of_a_segment_keeps_it_empty(log: LocalLog) -> None:
    fill(log, 12)
    removed = StagedOperation(log.truncate_to(5, NOW)).complete()
    assert [segment.base_offset for segment in removed] == [10]
    assert log.segments.base_offsets == [0, 5]
    assert log.segments.active.size == 0


def test_truncate_lowers_the_recovery_point(log: LocalLog) -> None:
    """S7: later records are not the ones that were flushed."""
    fill(log, 8)
    task = log.begin_flush()
    assert task is not None
    task.run()
    log.finish_flush(task)
    assert log.recovery_point == 8
    StagedOperation(log.truncate_to(6, NOW)).complete()
    assert log.recovery_point == 6


def test_truncate_fully(log: LocalLog, tmp_path: Path) -> None:
    fill(log, 12)
    removed = StagedOperation(log.truncate_fully(100, NOW)).complete()
    assert [segment.base_offset for segment in removed] == [0, 5, 10]
    assert names(tmp_path, ".log") == [100]
    assert (log.next_offset, log.recovery_point) == (100, 0)
    append(log, batch(b"a", base_offset=100))
    assert offsets_at(log, 100) == [100]


def test_truncate_fully_to_an_offset_within_the_log(log: LocalLog, tmp_path: Path) -> None:
    fill(log, 12)
    StagedOperation(log.truncate_fully(5, NOW)).complete()
    assert names(tmp_path, ".log") == [5]
    assert log.segments.size == 0


def test_no_truncation_while_a_flush_runs(log: LocalLog) -> None:
    fill(log, 3)
    task = log.begin_flush()
    assert task is not None
    with pytest.raises(RuntimeError, match="flush"):
        StagedOperation(log.truncate_to(1, NOW)).complete()
    with pytest.raises(RuntimeError, match="flush"):
        StagedOperation(log.truncate_fully(1, NOW)).complete()
    task.run()
    log.finish_flush(task)
    StagedOperation(log.truncate_to(1, NOW)).complete()
    assert log.next_offset == 1


# --- delete


def test_removed_files_wait_for_their_readers(log: LocalLog, tmp_path: Path) -> None:
    """S4: renamed at once, readable for fetches that are sending them, removed after the delay."""
    fill(log, 12)
    data = log.read(0, 10**6, 10**9, min_one=True)
    assert data is not None
    log.remove([log.segments.first], NOW)
    assert names(tmp_path, ".log") == [5, 10]
    assert names(tmp_path, ".log.deleted") == names(tmp_path, ".index.deleted") == [0]
    assert remove_deleted(log, NOW + 499) == 0
    assert [h.base_offset for _, _, h in batches_in(data[0])] == [0, 1, 2, 3, 4]
    assert remove_deleted(log, NOW + 500) == 1
    assert names(tmp_path, ".deleted") == []
    assert remove_deleted(log, NOW + 500) == 0


def test_removal_at_once(log: LocalLog, tmp_path: Path) -> None:
    fill(log, 12)
    log.remove(log.segments.between(0, 10), NOW, wait=False)
    assert names(tmp_path, "") == [10, 10, 10]


# --- aborted transactions


def test_aborted_transactions_over_segments(log: LocalLog) -> None:
    """P4: from the segment of the first offset on, until no later one can have any."""
    fill(log, 15)
    one, two, three = (
        AbortedTxn(1, 0, 3, 4),
        AbortedTxn(2, 2, 7, 8),
        AbortedTxn(3, 9, 12, 13),
    )
    for segment, txn in zip(log.segments, (one, two, three), strict=True):
        segment.indexes.txn_index.append(txn)
    assert log.aborted_transactions(0, 15) == [one, two, three]
    assert log.aborted_transactions(0, 3) == [one]
    assert log.aborted_transactions(4, 9) == [two]
    assert log.aborted_transactions(5, 10) == [two, three]
    assert log.aborted_transactions(8, 9) == []
    assert log.aborted_transactions(13, 15) == []


# --- replace


def cleaned(log: LocalLog, base_offset: int, *data: bytearray) -> LogSegment:
    segment = LogSegment(
        log.disk, log.directory, base_offset, log.config, NOW, create=True, suffix=".cleaned"
    )
    for part in data:
        segment.append(part, [header for _, header in split(part)])
    segment.seal()
    return segment


def test_replace_puts_new_segments_in_the_place_of_old_ones(log: LocalLog, tmp_path: Path) -> None:
    """S5: the old files stay for their readers, as after any deletion."""
    fill(log, 18)
    old = log.segments.between(0, 10)
    new = cleaned(log, 0, filler(100, base_offset=1), filler(100, base_offset=8))
    StagedOperation(log.replace([new], old, NOW)).complete()
    assert log.segments.base_offsets == names(tmp_path, ".log") == [0, 10, 15]
    assert names(tmp_path, ".log.deleted") == [0, 5]
    assert names(tmp_path, ".swap") == names(tmp_path, ".cleaned") == []
    assert offsets_at(log, 0) == [1, 8]
    assert offsets_at(log, 9) == [10, 11, 12, 13, 14]
    assert remove_deleted(log, NOW + 500) == 2


def test_replace_by_several_segments(log: LocalLog, tmp_path: Path) -> None:
    fill(log, 12)
    new = [
        cleaned(log, 0, filler(100, base_offset=0)),
        cleaned(log, 4, filler(100, base_offset=4)),
    ]
    StagedOperation(log.replace(new, log.segments.between(0, 5), NOW)).complete()
    assert log.segments.base_offsets == names(tmp_path, ".log") == [0, 4, 5, 10]
    assert offsets_at(log, 1) == [4]


def test_only_cleaned_segments_replace_others(log: LocalLog) -> None:
    fill(log, 12)
    with pytest.raises(ValueError, match=r"not \.cleaned"):
        StagedOperation(log.replace([log.segments.active], [log.segments.first], NOW)).complete()


# --- flush


def flush(log: LocalLog) -> None:
    task = log.begin_flush()
    assert task is not None
    task.run()
    log.finish_flush(task)


def test_a_flush_moves_the_recovery_point(log: LocalLog) -> None:
    """S7."""
    assert log.begin_flush() is None
    fill(log, 7)
    assert (log.recovery_point, log.unflushed) == (0, 7)
    assert log.has_unflushed_sealed_segment
    flush(log)
    assert (log.recovery_point, log.unflushed) == (7, 0)
    assert not log.has_unflushed_sealed_segment
    assert log.begin_flush() is None


def test_flushes_side_by_side(log: LocalLog) -> None:
    """S6: one on a thread, one on this thread; each covers what was appended before it began."""
    fill(log, 2)
    first = log.begin_flush()
    assert first is not None
    append(log, filler(100, base_offset=2))
    second = log.begin_flush()
    assert second is not None
    second.run()
    log.finish_flush(second)
    assert log.recovery_point == 3
    assert log.is_busy
    assert not log.are_files_locked, "the other flush keeps it busy"
    with pytest.raises(RuntimeError, match="flush"):
        StagedOperation(log.truncate_to(1, NOW)).complete()
    first.run()
    log.finish_flush(first)
    assert log.recovery_point == 3, "the earlier one takes nothing back"
    assert not log.is_busy
    assert log.begin_flush() is None


def test_a_failed_flush_leaves_the_recovery_point(log: LocalLog) -> None:
    fill(log, 2)
    task = log.begin_flush()
    assert task is not None
    log.finish_flush(task, succeeded=False)
    assert log.recovery_point == 0
    flush(log)
    assert log.recovery_point == 2


def test_a_flush_reaches_every_segment_from_the_recovery_point_on() -> None:
    """S7: with the indexes of the sealed ones, which are not rebuilt below the recovery point."""
    disk = CrashDisk()
    log = make(disk, "/d")
    fill(log, 7)
    flush(log)
    append(log, filler(100, base_offset=7))
    log.roll(8, NOW)
    append(log, filler(100, base_offset=8))
    log.roll(9, NOW)
    append(log, filler(100, base_offset=9))
    synced = {
        name: disk.fail("sync", f"/d/{name}", errno.EIO, after=10**9) for name in disk.names("/d")
    }
    directory = disk.fail("sync_directory", "/d", errno.EIO, after=10**9)
    flush(log)
    called = sorted(name for name, fault in synced.items() if fault.calls)
    expected = [f"{base:020d}.log" for base in (5, 8, 9)]
    expected += [f"{base:020d}{kind}" for base in (5, 8) for kind in (".index", ".timeindex")]
    assert called == sorted(expected)
    assert directory.calls == 1, "the names of new files are durable too"


def test_closing_flushes_everything() -> None:
    """S7: a clean stop leaves nothing to recover, and no slot of an index empty."""
    disk = CrashDisk()
    log = make(disk, "/d")
    disk.make_durable()
    fill(log, 7)
    entries = [segment.indexes.offset_index.entries for segment in log.segments]
    assert entries == [2, 0]
    log.close()
    assert log.recovery_point == 7
    durable = disk.image(CrashMode.DURABLE)
    assert [durable.size(f"/d/{base:020d}.log") for base in (0, 5)] == [500, 200]
    assert [durable.size(f"/d/{base:020d}.index") for base in (0, 5)] == [16, 0]
    assert [durable.size(f"/d/{base:020d}.timeindex") for base in (0, 5)] == [12, 12]
