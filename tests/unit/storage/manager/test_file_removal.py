"""Maintenance and first epochs whose I/O runs on another thread (S4, S6, R4)."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.storage.checkpoint.checkpoint_files import RECOVERY_POINT_CHECKPOINT, load_offsets
from penstock.storage.checkpoint.leader_epoch_cache import LeaderEpochCache
from penstock.storage.disk import OsDisk
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.manager.log_maintenance import MaintenanceIntervals
from penstock.storage.manager.log_manager import LogManager
from tests.support.broker.two_log_dirs import SMALL, TP
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk
from tests.support.storage.log_dirs import run_maintenance
from tests.support.storage.logs import NOW, filler

INTERVALS = MaintenanceIntervals(log_flush_offset_checkpoint_interval_ms=300)


class Broker:
    """One directory on a disk in memory, with 25 records that are flushed."""

    def __init__(self) -> None:
        self.disk = CrashDisk()
        self.clock = ManualClock(NOW)
        self.manager = LogManager(self.disk, ["/a"], self.clock, intervals=INTERVALS)
        self.manager.startup(lambda topic: SMALL, node_id=1)
        self.log = self.manager.get_or_create(TP, SMALL)
        for _ in range(25):
            self.log.append_as_leader(filler(100), 0)
        self.log.update_high_watermark(25)
        self.log.flush()

    def stored(self) -> int | None:
        return load_offsets(self.disk, f"/a/{RECOVERY_POINT_CHECKPOINT}").get(TP)


class TestCheckpoints:
    def test_they_are_written_on_a_thread(self) -> None:
        broker = Broker()
        assert broker.manager.maintenance.begin_checkpoints() == []
        broker.clock.advance(300)
        [(log_dir, task)] = broker.manager.maintenance.begin_checkpoints()
        assert broker.manager.maintenance.begin_checkpoints() == []
        with ThreadPoolExecutor(1) as pool:
            pool.submit(task.run).result()
        assert broker.stored() == 25
        before = broker.disk.operations
        log_dir.finish_checkpoint(task)
        run_maintenance(broker.manager)
        assert broker.disk.operations == before, "the chore is done"
        broker.manager.shutdown()

    def test_something_newer_is_not_overwritten(self) -> None:
        """R4: after a truncation the older recovery point would be wrong."""
        broker = Broker()
        broker.clock.advance(300)
        [(log_dir, task)] = broker.manager.maintenance.begin_checkpoints()
        broker.manager.begin_truncation(TP, 7).complete()
        task.run()
        log_dir.finish_checkpoint(task)
        assert broker.stored() == 7
        broker.manager.shutdown()

    def test_an_error_takes_the_directory_offline(self) -> None:
        broker = Broker()
        log_dir = broker.manager.dirs[0]
        task = log_dir.begin_checkpoint()
        assert task is not None
        broker.disk.fail("sync", "*.tmp", errno.EIO)
        task.run()
        assert log_dir.is_online
        log_dir.finish_checkpoint(task)
        assert not log_dir.is_online
        assert log_dir.begin_checkpoint() is None
        broker.manager.shutdown()


class TestRemovals:
    def test_segments_and_directories_are_removed_on_a_thread(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW)
        manager = LogManager(OsDisk(), [str(tmp_path)], clock)
        manager.startup(lambda topic: SMALL, node_id=1)
        log = manager.get_or_create(TP, SMALL)
        for _ in range(25):
            log.append_as_leader(filler(100), 0)
        log.update_high_watermark(25)
        log.increment_log_start_offset(20)
        delete_old_segments(log)
        assert manager.maintenance.begin_removals() == []
        clock.advance(500)
        [(log_dir, task)] = manager.maintenance.begin_removals()
        assert len(task.segments) == 2
        with ThreadPoolExecutor(1) as pool:
            pool.submit(task.run).result()
        log_dir.finish_removal(task)
        assert list(Path(log.directory).glob("*.deleted")) == []
        manager.delete(TP)
        clock.advance(500)
        [(log_dir, task)] = manager.maintenance.begin_removals()
        task.run()
        log_dir.finish_removal(task)
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
        assert manager.maintenance.begin_removals() == []
        manager.shutdown()

    def test_an_error_takes_the_directory_offline(self) -> None:
        broker = Broker()
        broker.manager.delete(TP)
        broker.clock.advance(500)
        broker.disk.fail("remove", "/a/*", errno.EIO)
        [(log_dir, task)] = broker.manager.maintenance.begin_removals()
        task.run()
        log_dir.finish_removal(task)
        assert not log_dir.is_online
        broker.manager.shutdown()


class TestTruncation:
    def test_truncation_is_a_staged_operation(self) -> None:
        """R4: the log can be read during it; flushes and retention wait."""
        broker = Broker()
        log, manager = broker.log, broker.manager
        log.append_as_leader(filler(100), 3)
        operation = manager.begin_truncation(TP, 7)
        turns = 0
        while not operation.advance():
            turns += 1
            assert log.read(2, 100, FetchIsolation.LOG_END).records is not None
            if log.local.are_files_locked:
                assert log.begin_flush() is None
                assert delete_old_segments(log) == []
            with ThreadPoolExecutor(1) as pool:
                pool.submit(operation.run).result()
        assert operation.result
        assert turns >= 4
        assert (log.log_end_offset, log.recovery_point, broker.stored()) == (7, 7, 7)
        assert LeaderEpochCache(broker.disk, log.directory).entries() == [(0, 0)]
        assert log.append_as_leader(filler(100), 4).first_offset == 7
        manager.shutdown()

    def test_an_error_in_the_middle_stops_the_log(self) -> None:
        broker = Broker()
        operation = broker.manager.begin_truncation(TP, 7)
        broker.disk.fail("sync_directory", "/a/orders-0", errno.EIO)
        assert not operation.advance()
        operation.run()
        with pytest.raises(KafkaStorageError):
            operation.advance()
        assert not broker.log.local.are_files_locked
        assert not broker.manager.dirs[0].is_online
        broker.manager.shutdown()

    def test_full_truncation_is_a_staged_operation(self) -> None:
        broker = Broker()
        operation = broker.manager.begin_full_truncation(TP, 100)
        while not operation.advance():
            operation.run()
        assert (broker.log.log_start_offset, broker.log.log_end_offset) == (100, 100)
        assert broker.log.epochs.entries() == []
        assert broker.log.append_as_leader(filler(100), 4).first_offset == 100
        broker.manager.shutdown()


class TestDeletion:
    def test_the_log_is_detached_at_once_and_its_directory_renamed_durably(self) -> None:
        broker = Broker()
        operation = broker.manager.begin_deletion([TP])
        assert not operation.advance()
        assert broker.manager.get(TP) is None
        with pytest.raises(KafkaStorageError, match="was deleted"):
            broker.log.append_as_leader(filler(100), 0)
        log_dir = broker.manager.dirs[0]
        log_dir.checkpoint()
        assert broker.stored() == 25, "as long as a crash may bring it back"
        operation.run()
        assert not broker.disk.exists("/a/orders-0")
        while not operation.advance():
            operation.run()
        assert operation.result == []
        assert broker.stored() is None
        broker.manager.shutdown()
