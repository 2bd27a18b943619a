"""Moves of partitions between directories of `log.dirs` (AlterReplicaLogDirs; S1)."""

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.checkpoint_files import CLEANER_OFFSET_CHECKPOINT, load_offsets
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.disk import OsDisk
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.manager import log_move
from penstock.storage.manager.log_manager import LogManager
from tests.support.broker.two_log_dirs import OTHER, SMALL, TP, A, B, TwoLogDirs
from tests.support.clock import ManualClock
from tests.support.storage.cleaning import TP as COMPACTED
from tests.support.storage.cleaning import Broker
from tests.support.storage.cleaning import fill as fill_compacted
from tests.support.storage.crash_disk import CrashMode
from tests.support.storage.log_dirs import run_maintenance
from tests.support.storage.logs import batch, filler, marker, offsets, values


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a move of a few batches take several steps."""
    monkeypatch.setattr(log_move, "CHUNK_BYTES", 700)
    monkeypatch.setattr(log_move, "FINAL_BYTES", 250)


@pytest.fixture
def broker() -> Iterator[TwoLogDirs]:
    broker = TwoLogDirs()
    yield broker
    broker.manager.shutdown()


class TestMove:
    def test_the_partition_is_in_its_new_directory(self, broker: TwoLogDirs) -> None:
        broker.fill(25)
        old = broker.log
        move = broker.begin()
        broker.finish(move)
        assert move.is_done
        assert broker.current_dir() == B
        assert broker.manager.get(TP) is move.log is not old
        assert offsets(broker.log) == list(range(25))
        assert broker.directories(B) == ["orders-0"]
        assert [name.endswith("-delete") for name in broker.directories(A)] == [True]
        broker.fill(5)
        assert broker.log.log_end_offset == 30

    def test_the_old_log_is_readable_for_a_while_and_accepts_nothing(
        self, broker: TwoLogDirs
    ) -> None:
        """A consumer that is being served from it is served to the end."""
        broker.fill(3)
        old = broker.log
        broker.finish(broker.begin())
        assert offsets(old) == [0, 1, 2]
        with pytest.raises(KafkaStorageError, match="moved to /b"):
            old.append_as_leader(filler(100), 0)
        broker.clock.advance(600)
        run_maintenance(broker.manager)
        assert broker.directories(A) == []

    def test_appends_go_on(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        steps = iter(range(10))
        broker.finish(broker.begin(), lambda: broker.fill(1) if next(steps, None) else None)
        assert broker.log.log_end_offset > 20
        assert offsets(broker.log) == list(range(broker.log.log_end_offset))

    def test_the_state_of_the_log_moves_too(self, broker: TwoLogDirs) -> None:
        """P3, P4: producers, open transactions, epochs, watermark and start offset."""
        log = broker.log
        log.append_as_leader(batch(b"1", producer_id=1, sequence=0), 2)
        log.append_as_leader(batch(b"2", producer_id=2, sequence=0, transactional=True), 5)
        broker.fill(12)
        log.increment_log_start_offset(1)
        log.update_high_watermark(8)
        broker.finish(broker.begin())
        moved = broker.log
        assert (moved.log_start_offset, moved.high_watermark) == (1, 8)
        assert moved.last_stable_offset == 1
        assert moved.epochs.entries() == log.epochs.entries()
        assert moved.append_as_leader(batch(b"1", producer_id=1, sequence=0), 5).is_duplicate
        broker.kill()
        broker.start()
        assert (broker.log.log_start_offset, broker.log.last_stable_offset) == (1, 1)
        assert offsets(broker.log)[0] == 1

    def test_aborted_transactions(self, broker: TwoLogDirs) -> None:
        log = broker.log
        log.append_as_leader(batch(b"2", producer_id=2, sequence=0, transactional=True), 0)
        log.append_as_follower(marker(2, commit=False, base_offset=1, leader_epoch=0))
        aborted = log.aborted_transactions(0, 2)
        assert len(aborted) == 1
        broker.finish(broker.begin())
        assert broker.log.aborted_transactions(0, 2) == aborted

    def test_an_empty_log(self, broker: TwoLogDirs) -> None:
        assert broker.log.log_end_offset == 0
        broker.finish(broker.begin())
        assert broker.current_dir() == B
        broker.fill(1)
        assert offsets(broker.log) == [0]

    def test_a_log_whose_records_were_all_deleted(self, broker: TwoLogDirs) -> None:
        broker.fill(25)
        broker.log.increment_log_start_offset(25)
        delete_old_segments(broker.log)
        broker.finish(broker.begin())
        assert (broker.log.log_start_offset, broker.log.log_end_offset) == (25, 25)
        broker.kill()
        broker.start()
        assert (broker.log.log_start_offset, broker.log.log_end_offset) == (25, 25)

    def test_records_that_are_deleted_before_they_are_copied(self, broker: TwoLogDirs) -> None:
        broker.fill(30)
        move = broker.begin()
        broker.step(move)
        broker.log.increment_log_start_offset(25)
        delete_old_segments(broker.log)
        broker.finish(move)
        assert offsets(broker.log) == [25, 26, 27, 28, 29]

    def test_records_that_are_deleted_when_the_copy_has_nearly_caught_up(
        self, broker: TwoLogDirs
    ) -> None:
        """The copy starts again at the new start offset instead of trying to swap for ever."""
        broker.fill(5)
        move = broker.begin()
        for _ in range(50):
            if move.is_synced:
                break
            assert not broker.manager.advance_move(move)
            move.run()
        assert move.is_synced
        broker.fill(1)
        broker.log.increment_log_start_offset(broker.log.log_end_offset)
        for _ in range(50):
            if broker.manager.advance_move(move):
                break
            move.run()
        assert move.is_done
        assert (broker.log.log_start_offset, broker.log.log_end_offset) == (6, 6)

    def test_a_batch_larger_than_a_segment_may_be_now(self, broker: TwoLogDirs) -> None:
        broker.log.append_as_leader(filler(900), 0)
        broker.log.config = replace(SMALL, segment_bytes=500)
        broker.fill(3)
        broker.finish(broker.begin())
        assert offsets(broker.log) == [0, 1, 2, 3]

    def test_it_waits_for_a_flush(self, broker: TwoLogDirs) -> None:
        """The flush would not find the directory that it syncs."""
        broker.fill(3)
        flush = broker.log.begin_flush()
        assert flush is not None
        move = broker.begin()
        for _ in range(5):
            broker.step(move)
        flush.run()
        broker.log.finish_flush(flush)
        broker.finish(move)
        assert move.is_done

    def test_a_log_that_is_flushed_all_the_time(self, broker: TwoLogDirs) -> None:
        """Everything durable in the old directory is durable in the new one."""

        def flushed_append() -> None:
            if broker.log.log_end_offset < 60:
                broker.fill(1)
                broker.log.flush()

        broker.fill(3)
        move = broker.begin()
        broker.finish(move, flushed_append)
        assert move.is_done
        end = broker.log.recovery_point
        assert end > 3
        broker.disk = broker.disk.image(CrashMode.DURABLE)
        broker.start()
        assert broker.log.log_end_offset >= end

    def test_on_a_thread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Off the event loop: the log is used while it is copied."""
        monkeypatch.setattr(log_move, "CHUNK_BYTES", 20_000)
        directories = [str(tmp_path / "a"), str(tmp_path / "b")]
        manager = LogManager(OsDisk(), directories, ManualClock())
        manager.startup(lambda topic: SMALL, node_id=1)
        log = manager.get_or_create(TP, SMALL)
        with ThreadPoolExecutor(1) as pool:
            for target in (1, 0, 1):
                for n in range(300):
                    log.append_as_leader(batch(b"%d" % n), 0)
                move = manager.begin_move(TP, directories[target])
                assert move is not None
                while not manager.advance_move(move):
                    running = pool.submit(move.run)
                    log = move.log
                    for n in range(3):
                        log.append_as_leader(batch(b"%d" % n), 0)
                    log.update_high_watermark(log.log_end_offset)
                    running.result()
                assert move.is_done, move.error
                log = move.log
        assert offsets(log) == list(range(log.log_end_offset))
        manager.shutdown()
        manager = LogManager(OsDisk(), directories, ManualClock())
        manager.startup(lambda topic: SMALL, node_id=1)
        again = manager.get(TP)
        assert again is not None
        assert again.log_end_offset == log.log_end_offset
        assert len(values(again)) == log.log_end_offset
        manager.shutdown()


class TestRequests:
    def test_a_directory_that_does_not_exist(self, broker: TwoLogDirs) -> None:
        for call in (broker.manager.begin_move, broker.manager.prefer_dir):
            with pytest.raises(KafkaError, match=r"/a, /b") as error:
                call(TP, "/c")
            assert error.value.code is ErrorCode.LOG_DIR_NOT_FOUND

    def test_a_directory_that_is_offline(self, broker: TwoLogDirs) -> None:
        broker.fill(1)
        broker.manager.dirs[1].fail(OSError(errno.EIO, "broken"))
        for call in (broker.manager.begin_move, broker.manager.prefer_dir):
            with pytest.raises(KafkaError) as error:
                call(TP, B)
            assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_partition_without_a_log_is_created_in_the_target(self, broker: TwoLogDirs) -> None:
        with pytest.raises(KafkaError) as error:
            broker.manager.begin_move(OTHER, B)
        assert error.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
        assert broker.manager.get_or_create(OTHER, SMALL).directory == "/b/bills-0"

    def test_a_name_that_is_too_long(self, broker: TwoLogDirs) -> None:
        with pytest.raises(KafkaError) as error:
            broker.manager.begin_move(TopicPartition("t" * 249, 0), B)
        assert error.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_a_move_to_the_current_directory(self, broker: TwoLogDirs) -> None:
        broker.fill(1)
        assert broker.manager.begin_move(TP, A) is None
        broker.begin()
        assert broker.manager.begin_move(TP, B) is None

    def test_the_current_directory_cancels(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        move = broker.begin()
        broker.step(move)
        assert broker.manager.begin_move(TP, A) is None
        broker.finish(move)
        assert (move.is_done, move.error) == (False, None)
        assert broker.directories(B) == []
        broker.finish(broker.begin())
        assert broker.current_dir() == B

    def test_deleting_the_topic_cancels(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        move = broker.begin()
        broker.step(move)
        broker.manager.delete(TP)
        broker.finish(move)
        assert not move.is_done
        assert broker.directories(B) == []
        assert broker.manager.get(TP) is None

    def test_sizes_while_it_is_copied(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        move = broker.begin()
        broker.step(move)
        first, second = broker.manager.describe()
        assert (first.path, first.error, second.path) == (A, None, B)
        assert first.space is not None
        assert first.space.total > first.space.usable > 0
        assert [tuple(partition) for partition in first.partitions] == [(TP, 2000, 0, False)]
        assert [tuple(partition) for partition in second.partitions] == [(TP, 700, 13, True)]
        broker.finish(move)
        broker.manager.dirs[0].fail(OSError(errno.EIO, "broken"))
        first, second = broker.manager.describe()
        assert first.error is not None
        assert (first.space, list(first.partitions)) == (None, [])
        assert [tuple(partition) for partition in second.partitions] == [(TP, 2000, 0, False)]


class TestTrouble:
    def test_a_full_disk_ends_the_move_only(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        move = broker.begin()
        broker.step(move)
        broker.disk.fail("write", "/b/*.log", errno.ENOSPC)
        broker.finish(move)
        broker.disk.heal()
        assert move.error is not None
        assert "stays in /a" in move.error.message
        assert [log_dir.is_online for log_dir in broker.manager.dirs] == [True, True]
        assert broker.directories(B) == []
        broker.fill(1)
        assert broker.current_dir() == A

    def test_a_broken_target(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        move = broker.begin()
        broker.step(move)
        broker.disk.fail("write", "/b/*.log", errno.EIO)
        broker.finish(move)
        assert move.error is not None
        assert [log_dir.is_online for log_dir in broker.manager.dirs] == [True, False]
        broker.fill(1)

    def test_a_broken_source(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        move = broker.begin()
        broker.step(move)
        broker.disk.fail("read", "/a/*.log", errno.EIO)
        broker.finish(move)
        broker.disk.heal()
        assert move.error is not None
        assert [log_dir.is_online for log_dir in broker.manager.dirs] == [False, True]
        assert broker.directories(B) == []

    @pytest.mark.parametrize(
        ("operation", "path"), [("rename", "/b/*-future"), ("sync_directory", B)]
    )
    def test_a_swap_that_fails(self, broker: TwoLogDirs, operation: str, path: str) -> None:
        """The partition continues in its old directory, and a start keeps the log with more
        records."""
        broker.fill(5)
        move = broker.begin()
        broker.step(move)
        broker.disk.fail(operation, path, errno.EIO)
        broker.finish(move)
        broker.disk.heal()
        assert not move.is_done
        assert move.error is not None
        broker.fill(3)
        broker.kill()
        broker.start()
        assert broker.current_dir() == A
        assert offsets(broker.log) == list(range(8))

    def test_an_old_directory_that_cannot_be_renamed(self, broker: TwoLogDirs) -> None:
        broker.fill(5)
        move = broker.begin()
        broker.disk.fail("rename", "/a/orders-0", errno.EIO)
        broker.finish(move)
        broker.disk.heal()
        assert move.is_done
        broker.fill(3)
        broker.kill()
        broker.start()
        assert broker.current_dir() == B
        assert offsets(broker.log) == list(range(8))
        assert broker.directories(B) == ["orders-0"]
        assert not broker.disk.exists("/b/orders-0/.penstock_moved")

    def test_a_stop_in_the_middle(self, broker: TwoLogDirs) -> None:
        broker.fill(20)
        broker.step(broker.begin())
        broker.manager.shutdown()
        broker.start()
        assert broker.manager.unfinished_moves() == [(TP, B)]
        assert broker.current_dir() == A
        move = broker.begin()
        broker.finish(move)
        assert broker.directories(B) == ["orders-0"]
        assert offsets(broker.log) == list(range(20))

    def test_a_truncation_in_the_middle(self, broker: TwoLogDirs) -> None:
        """R4: the copy has nothing that the log has lost."""
        broker.fill(20)
        move = broker.begin()
        broker.step(move)
        broker.manager.begin_truncation(TP, 3).complete()
        broker.log.append_as_leader(batch(b"other"), 1)
        broker.finish(move)
        assert move.is_done
        assert offsets(broker.log) == [0, 1, 2, 3]
        assert values(broker.log)[-1] == b"other"

    def test_an_empty_log_in_another_directory_without_a_move_is_deleted(
        self, broker: TwoLogDirs
    ) -> None:
        broker.fill(1)
        broker.disk.make_directory("/b/orders-0")
        broker.manager.shutdown()
        broker.start()
        assert broker.current_dir() == A
        assert broker.log.log_end_offset == 1
        assert "orders-0" not in broker.directories(B)


class TestCleaner:
    def test_the_cleaner_backs_off_and_continues(self) -> None:
        """S5: how far the log was cleaned moves with it."""
        broker = Broker(directories=("/a", "/b"))
        fill_compacted(broker)
        assert broker.clean() == 1
        cleaned = broker.cleaner.first_dirty_offset(COMPACTED)
        manager, cleaner = broker.manager, LogCleaner(broker.manager, broker.clock)
        move = manager.begin_move(COMPACTED, "/b")
        assert move is not None
        broker.append((b"k0", b"new"))
        broker.roll()
        broker.append((b"k0", b"newer"))
        assert cleaner.begin() is None
        while not manager.advance_move(move):
            move.run()
        assert move.is_done
        assert load_offsets(broker.disk, f"/b/{CLEANER_OFFSET_CHECKPOINT}") == {COMPACTED: cleaned}
        assert load_offsets(broker.disk, f"/a/{CLEANER_OFFSET_CHECKPOINT}") == {}
        move.log.update_high_watermark(move.log.log_end_offset)
        assert cleaner.first_dirty_offset(COMPACTED) == cleaned
        move.log.roll()
        assert cleaner.clean() == 1
        manager.shutdown()
