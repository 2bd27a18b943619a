"""Flushing: when it is due, what it makes durable, and from which thread (S6, S7)."""

import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.storage.disk import OsDisk, OsFile
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log_config import LogConfig
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.gated_disk import GatedDisk
from tests.support.storage.logs import (
    LogDirectory,
    batch,
    filler,
    offsets,
    remove_deleted_segments,
    values,
)

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, index_interval_bytes=150)


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(filler(100), 0)


def durable(directory: LogDirectory, disk: CrashDisk, mode: CrashMode = CrashMode.DURABLE) -> Log:
    """Returns the log after a power failure at this moment."""
    again = LogDirectory(directory.path.parent, directory.config, disk=disk.image(mode, Random(1)))
    return again.open(recovery_point=directory.log.recovery_point)


# --- when a flush is due


def test_flush_messages_requires_a_flush_before_the_response(tmp_path: Path) -> None:
    """S6: `flush.messages`."""
    with LogDirectory(tmp_path, LogConfig(flush_messages=3)) as directory:
        log = directory.open()
        due = []
        for _ in range(7):
            info = log.append_as_leader(batch(b"a"), 0)
            due.append((info.needs_flush, log.is_flush_due))
            if info.needs_flush:
                log.flush()
                assert log.recovery_point == log.log_end_offset
                assert not log.is_flush_due
        requested = [False, False, True, False, False, True, False]
        assert due == [(is_due, is_due) for is_due in requested]


def test_flush_messages_counts_records_not_batches(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, LogConfig(flush_messages=3)) as directory:
        log = directory.open()
        assert not log.append_as_leader(batch(b"a", b"b"), 0).needs_flush
        assert log.append_as_leader(batch(b"c", b"d"), 0).needs_flush


def test_flush_ms(tmp_path: Path) -> None:
    """S6: `flush.ms` since the last flush, if there is something to flush."""
    with LogDirectory(tmp_path, LogConfig(flush_ms=1000)) as directory:
        log = directory.open()
        directory.clock.advance(5000)
        assert not log.is_flush_due
        log.append_as_leader(batch(b"a"), 0)
        assert log.is_flush_due
        log.flush()
        assert not log.is_flush_due
        log.append_as_leader(batch(b"b"), 0)
        directory.clock.advance(999)
        assert not log.is_flush_due
        directory.clock.advance(1)
        assert log.is_flush_due


def test_by_default_only_sealed_segments_are_flushed(tmp_path: Path) -> None:
    """S6: the page cache and the replicas keep the rest."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 10)
        directory.clock.advance(10**12)
        assert not log.is_flush_due
        assert log.append_as_leader(filler(100), 0).has_rolled
        assert log.is_flush_due
        log.flush()
        assert not log.is_flush_due


# --- durability


def test_flushed_records_survive_a_power_failure(tmp_path: Path) -> None:
    """S7: only flushed records are guaranteed."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, SMALL, disk=disk) as directory:
        log = directory.open()
        disk.make_durable()
        fill(log, 25)
        assert offsets(durable(directory, disk)) == []
        log.flush()
        assert offsets(durable(directory, disk)) == list(range(25))
        fill(log, 10)
        assert offsets(durable(directory, disk)) == list(range(25))
        assert offsets(durable(directory, disk, CrashMode.WRITTEN)) == list(range(35))


def test_a_flush_of_nothing(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        log = directory.open()
        assert log.begin_flush() is None
        log.flush()
        assert log.recovery_point == 0


def test_a_failed_flush_stops_the_log(tmp_path: Path) -> None:
    """S7: after a failed fsync the kernel may have dropped the pages; only a restart can tell."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        disk.fail("sync", "*.log", errno.EIO)
        with pytest.raises(KafkaStorageError, match="offline"):
            log.flush()
        disk.heal()
        assert log.recovery_point == 0
        assert len(directory.failures) == 1
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(batch(b"b"), 0)
        assert values(log) == [b"a"]
        directory.close()


# --- on another thread


class LateDisk(OsDisk):
    """A disk that blocks a flush on another thread before it opens an index by name."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.gate = threading.Event()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        if path.endswith(".index") and threading.current_thread() is not threading.main_thread():
            self.reached.set()
            assert self.gate.wait(60), "the flush was never released"
        return super().open(path, create=create)


@contextmanager
def blocked_flush(log: Log, disk: GatedDisk | LateDisk) -> Iterator[None]:
    """Starts a flush on another thread, yields while `disk` blocks it, and then finishes it."""
    task = log.begin_flush()
    assert task is not None
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task.run)
        try:
            assert disk.reached.wait(60)
            yield
        finally:
            disk.gate.set()
        running.result(10)
    log.finish_flush(task)


def test_appends_and_reads_continue_during_a_flush(tmp_path: Path) -> None:
    """S6: the event loop never waits for the disk."""
    disk = GatedDisk()
    with LogDirectory(tmp_path, SMALL, disk=disk) as directory:
        log = directory.open()
        fill(log, 15)
        with blocked_flush(log, disk):
            fill(log, 20)
            assert log.begin_flush() is None, "one at a time"
            assert offsets(log) == list(range(35))
            log.update_high_watermark(35)
            assert log.recovery_point == 0
        assert log.recovery_point == 15, "records appended after its start are not covered"
        log.flush()
        assert log.recovery_point == 35


def test_a_log_rolls_while_its_segment_is_flushed(tmp_path: Path) -> None:
    """S6: the flush covers the segment that was active when it began."""
    disk = GatedDisk()
    with LogDirectory(tmp_path, SMALL, disk=disk) as directory:
        log = directory.open()
        fill(log, 5)
        with blocked_flush(log, disk):
            fill(log, 20)
        assert log.recovery_point == 5
        assert log.is_flush_due, "segments sealed during the flush are not flushed"
        log.flush()
        log = directory.reopen(clean=False)
        assert offsets(log) == list(range(25))


def delete_while_flushing(tmp_path: Path, disk: GatedDisk | LateDisk) -> None:
    """Deletes two segments by retention while `disk` blocks their flush."""
    config = LogConfig(segment_bytes=1000, segment_index_bytes=1200, retention_bytes=1000)
    with LogDirectory(tmp_path, config, disk=disk) as directory:
        log = directory.open()
        fill(log, 35)
        log.update_high_watermark(35)
        with blocked_flush(log, disk):
            assert len(delete_old_segments(log)) == 2
        assert log.recovery_point == 35
        assert log.failure is None


def test_retention_may_delete_a_segment_while_it_is_flushed(tmp_path: Path) -> None:
    """S4, S6: its files are renamed during the flush, which must not be a failure."""
    delete_while_flushing(tmp_path, GatedDisk())


def test_files_are_not_removed_under_a_flush(tmp_path: Path) -> None:
    """S4, S6: no matter how short their delay is, and although the log rolls."""
    disk = GatedDisk()
    config = LogConfig(
        segment_bytes=1000, segment_index_bytes=1200, retention_bytes=0, file_delete_delay_ms=0
    )
    with LogDirectory(tmp_path, config, disk=disk) as directory:
        log = directory.open()
        fill(log, 25)
        log.update_high_watermark(25)
        with blocked_flush(log, disk):
            assert len(delete_old_segments(log)) == 3
            assert remove_deleted_segments(log) == 0
        assert remove_deleted_segments(log) == 3
        assert directory.names(".deleted") == []
        assert log.failure is None


def test_an_empty_segment_is_rolled_under_a_flush(tmp_path: Path) -> None:
    disk = GatedDisk()
    with LogDirectory(tmp_path, SMALL, disk=disk) as directory:
        log = directory.open()
        fill(log, 5)
        log.roll()
        with blocked_flush(log, disk):
            log.roll()
        fill(log, 1)
        assert offsets(log) == list(range(6))


def test_retention_renames_a_file_that_a_flush_is_about_to_open(tmp_path: Path) -> None:
    """S4, S6: the name does not exist any more, which is not a disk error."""
    delete_while_flushing(tmp_path, LateDisk())


def test_a_missing_file_of_a_current_segment_is_a_failure(tmp_path: Path) -> None:
    """S7: the file was removed from outside; the flushed records are not on disk."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        fill(log, 25)
        directory.file(0, ".index").unlink()
        with pytest.raises(KafkaStorageError, match="offline"):
            log.flush()
        assert log.recovery_point == 0


def test_a_flush_that_failed_on_its_thread(tmp_path: Path) -> None:
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        task = log.begin_flush()
        assert task is not None
        error = OSError(errno.EIO, "it broke")
        with pytest.raises(KafkaStorageError, match="it broke"):
            log.finish_flush(task, error)
        assert log.recovery_point == 0
        assert directory.failures == [error]
        assert log.failure is not None


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), ValueError("broken")])
def test_no_flush_succeeds_after_one_that_failed(tmp_path: Path, error: Exception) -> None:
    """S7: the kernel reports an error once; whatever ended a flush, the data may not be on disk."""
    with LogDirectory(tmp_path, disk=CrashDisk()) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        task = log.begin_flush()
        assert task is not None
        with pytest.raises(KafkaStorageError, match="broken"):
            log.finish_flush(task, error)
        for flush in (log.begin_flush, log.flush):
            with pytest.raises(KafkaStorageError, match="broken"):
                flush()
        assert log.recovery_point == 0


def test_a_flush_that_another_one_overtook_does_not_succeed(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, disk=CrashDisk()) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        task = log.begin_flush()
        assert task is not None
        task.run()
        with pytest.raises(KafkaStorageError, match="broken"):
            log.guard.fail(OSError(errno.EIO, "broken"))
        with pytest.raises(KafkaStorageError, match="broken"):
            log.finish_flush(task)
        assert log.recovery_point == 0


def test_a_blocking_flush_while_another_runs(tmp_path: Path) -> None:
    """S6: `flush.messages` guarantees durability, even if another flush is running."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, disk=disk) as directory:
        log = directory.open()
        disk.make_durable()
        log.append_as_leader(batch(b"a"), 0)
        background = log.begin_flush()
        assert background is not None
        log.append_as_leader(batch(b"b"), 0)
        log.flush()
        assert values(durable(directory, disk)) == [b"a", b"b"]
        background.run()
        log.finish_flush(background)
        assert log.recovery_point == 2


def test_closing_flushes_everything(tmp_path: Path) -> None:
    """S7: after a clean shutdown nothing is read again."""
    disk = CrashDisk()
    with LogDirectory(tmp_path, SMALL, disk=disk) as directory:
        log = directory.open()
        disk.make_durable()
        fill(log, 25)
        log.append_as_leader(batch(b"p", producer_id=7, sequence=0), 0)
        directory.close()
        assert log.recovery_point == 26
        again = LogDirectory(tmp_path, SMALL, disk=disk.image(CrashMode.DURABLE))
        opened = again.open(clean=True, recovery_point=26)
        assert offsets(opened) == list(range(26))
        assert opened.recovery_point == 26
        assert opened.append_as_leader(batch(b"p", producer_id=7, sequence=0), 0).is_duplicate


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_flush_ms_does_not_follow_steps_of_the_wall_clock(tmp_path: Path, step_ms: int) -> None:
    """S7: a clock that is set back must not postpone durability."""
    with LogDirectory(tmp_path, LogConfig(flush_ms=1000)) as directory:
        log = directory.open()
        log.append_as_leader(batch(b"a"), 0)
        directory.clock.step(step_ms)
        directory.clock.advance(999)
        assert not log.is_flush_due
        directory.clock.advance(1)
        assert log.is_flush_due
