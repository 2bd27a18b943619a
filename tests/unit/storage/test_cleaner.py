"""The cleaner of a broker: what it picks, what it leaves, and what may happen meanwhile (S5)."""

import errno
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.clock import ManualClock
from penstock.core.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    load_offsets,
)
from penstock.storage.cleaner import CleanerSettings, FlushStep, LogCleaner
from penstock.storage.cleaning_task import CleaningTask
from penstock.storage.config import LogConfig
from penstock.storage.disk import OsDisk
from penstock.storage.log import Isolation, Log
from penstock.storage.manager import LogManager
from tests.support.cleaning import COMPACT, FOLDER, TP, Broker
from tests.support.logs import headers_of, read_all

OTHER = TopicPartition("accounts", 1)


def fill(broker: Broker, log: Log | None = None, *, segments: int = 3, keys: int = 4) -> None:
    """Sealed segments in which each key is once, and an active one."""
    for segment in range(segments):
        for key in range(keys):
            broker.append((b"k%d" % key, b"v%d" % segment), log=log)
        broker.roll(log)
    broker.append((b"active", b"-"), log=log)


def checkpoint(broker: Broker, folder: str = FOLDER) -> dict[TopicPartition, int]:
    return load_offsets(broker.disk, f"{folder}/{CLEANER_OFFSET_CHECKPOINT}")


def leftovers(broker: Broker) -> list[str]:
    """Files of a cleaning that should not be there any more."""
    names = broker.disk.names(broker.log.folder)
    return [name for name in names if name.endswith((".cleaned", ".swap"))]


def run_all(broker: Broker, task: CleaningTask) -> None:
    following: object = task
    while following is not None:
        task.run()
        following = broker.cleaner.finish(task)


class TestCleaning:
    def test_segments_become_one_and_the_checkpoint_moves(self) -> None:
        broker = Broker()
        fill(broker)
        assert broker.clean() == 1
        assert broker.bases() == [0, 12]
        assert broker.offsets() == [8, 9, 10, 11, 12]
        assert checkpoint(broker) == {TP: 12}
        assert broker.cleaner.first_dirty_offset(TP) == 12
        assert leftovers(broker) == []
        assert broker.clean() == 0

    def test_segments_that_are_too_large_for_one_become_several(self) -> None:
        broker = Broker(replace(COMPACT, segment_bytes=200))
        for n in range(4):
            broker.append((b"same", b"%d" % n), (b"%d" % n, bytes(100)))
            broker.roll()
        task = broker.begin()
        run_all(broker, task)
        assert broker.bases() == [0, 2, 4, 6, 8]
        assert broker.offsets() == [1, 3, 5, 6, 7]
        assert checkpoint(broker) == {TP: 8}

    def test_a_cleaning_goes_on_in_the_middle_of_a_segment(self) -> None:
        """Where the map was full; the segments after that are read from their beginnings."""
        broker = Broker(settings=CleanerSettings(dedupe_buffer_size=24 * 8))
        for n in range(9):
            broker.append((b"%d" % n, bytes(100)))
        broker.roll()
        assert broker.clean_one()
        assert checkpoint(broker) == {TP: 7}
        broker.append((b"0", b"new"))
        broker.append((b"1", b"new"))
        broker.roll()
        assert broker.clean_one()
        assert broker.offsets() == [2, 3, 4, 5, 6, 7, 8, 9, 10]

    def test_offsets_that_a_leader_had_compacted_away_are_clean_too(self) -> None:
        """A follower's log has gaps from the start, also at the end of a segment."""
        broker = Broker(replace(COMPACT, segment_bytes=150))
        for offset in (0, 1, 10):
            batch = build_batch([Record(offset, 0, b"k", bytes(20))], base_offset=offset)
            broker.log.append_as_follower(batch)
        broker.log.update_high_watermark(11)
        assert broker.bases() == [0, 10]
        assert broker.clean() == 1
        assert broker.offsets() == [1, 10]
        assert checkpoint(broker) == {TP: 10}

    def test_the_checkpoint_survives_a_restart(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.stop()
        broker.start()
        assert broker.cleaner.first_dirty_offset(TP) == 12
        assert broker.clean() == 0
        broker.append((b"k0", b"new"))
        broker.roll()
        assert broker.clean() == 1
        assert checkpoint(broker) == {TP: 14}
        assert broker.table()[b"k0"] == b"new"

    def test_a_broken_checkpoint_costs_a_cleaning_and_no_more(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.stop()
        file = broker.disk.open(f"{FOLDER}/{CLEANER_OFFSET_CHECKPOINT}")
        file.write_at(b"x", 0)
        broker.start()
        assert broker.clean() == 1
        assert "cleaned anew" in caplog.text
        assert checkpoint(broker) == {TP: 12}

    def test_files_keep_the_time_of_the_last_original(self) -> None:
        broker = Broker()
        fill(broker, segments=1)
        written = broker.log.local.segments.first.modified_ms
        broker.advance(60_000)
        assert broker.clean() == 1
        assert broker.log.local.segments.first.modified_ms == written

    def test_a_segment_that_stays_as_it_is_is_not_replaced(self) -> None:
        broker = Broker()
        fill(broker, segments=1)
        before = broker.log.local.segments.first
        assert broker.clean() == 1
        assert broker.log.local.segments.first is before
        assert checkpoint(broker) == {TP: 4}
        assert leftovers(broker) == []

    def test_a_log_that_is_not_compacted_is_left_alone(self) -> None:
        broker = Broker(LogConfig())
        fill(broker)
        assert broker.cleaner.begin() is None

    def test_the_filthiest_log_is_cleaned_first(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.append((b"k0", b"x"))
        broker.roll()
        other = broker.create(OTHER)
        fill(broker, other)
        assert broker.begin().partition == OTHER

    def test_indexes_of_the_new_segment_find_every_offset(self) -> None:
        broker = Broker(replace(COMPACT, index_interval_bytes=0))
        for n in range(40):
            broker.advance(1)
            broker.append((b"%d" % n, b"v"), (b"%d" % (n % 7), b"w"))
        broker.roll()
        assert broker.clean() == 1
        log = broker.log
        assert log.local.segments.first.offset_index.entries > 10
        offsets = broker.offsets()
        for offset in range(log.log_end_offset):
            found = read_all(log, start=offset)
            assert [record.offset for record in found] == [o for o in offsets if o >= offset]
        for record in broker.records():
            found_by_time = log.offset_for_timestamp(record.timestamp)
            assert found_by_time is not None
            assert found_by_time.timestamp == record.timestamp

    def test_old_files_can_be_read_until_their_delay_has_passed(self) -> None:
        broker = Broker()
        fill(broker)
        fetched = broker.log.read(0, 10_000, Isolation.LOG_END)
        assert fetched.records is not None
        before = fetched.records.read()
        broker.clean()
        assert fetched.records.read() == before
        assert any(name.endswith(".deleted") for name in broker.disk.names(broker.log.folder))
        broker.advance(COMPACT.file_delete_delay_ms)
        broker.log.purge_deleted()
        assert not any(name.endswith(".deleted") for name in broker.disk.names(broker.log.folder))

    def test_a_disabled_cleaner_does_nothing(self) -> None:
        broker = Broker(settings=CleanerSettings(enable=False))
        fill(broker)
        assert broker.cleaner.begin() is None


class TestMemory:
    def test_a_full_map_cleans_as_far_as_it_reaches(self) -> None:
        """S5: memory is bounded by `log.cleaner.dedupe.buffer.size`."""
        broker = Broker(settings=CleanerSettings(dedupe_buffer_size=24 * 6))
        for n in range(30):
            broker.append((b"a%d" % n, b"1"), (b"b%d" % (n // 2), b"1"))
        broker.roll()
        expected = broker.table()
        task = broker.begin()
        run_all(broker, task)
        # Keys a0, b0, a1, a2 and b1: the sixth, at offset 6, finds no room.
        assert task.end_offset == 6
        assert checkpoint(broker) == {TP: 6}
        assert broker.offsets() == [offset for offset in range(60) if offset != 1]
        assert task.map_utilization == pytest.approx(5 / 6)
        reached = [6]
        while broker.clean_one():
            reached.append(checkpoint(broker)[TP])
        assert reached == sorted(set(reached))
        assert reached[-1] == 60
        assert broker.table() == expected
        assert len(broker.offsets()) == 45

    def test_a_tombstone_beyond_the_map_waits_for_the_next_cleaning(self) -> None:
        broker = Broker(settings=CleanerSettings(dedupe_buffer_size=24 * 4))
        broker.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
        broker.append((b"a", None))
        broker.roll()
        run_all(broker, broker.begin())
        assert checkpoint(broker) == {TP: 3}
        assert not headers_of(broker.log)[1].has_delete_horizon
        broker.advance(COMPACT.delete_retention_ms)
        run_all(broker, broker.begin())
        assert broker.pairs() == [(b"b", b"1"), (b"c", b"1"), (b"a", None)]
        assert headers_of(broker.log)[1].has_delete_horizon

    def test_a_small_log_does_not_take_all_that_is_allowed(self) -> None:
        broker = Broker(replace(COMPACT, segment_index_bytes=1000))
        fill(broker)
        tracemalloc.start()
        try:
            broker.clean()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2_000_000 < broker.settings.dedupe_buffer_size

    def test_a_large_log_takes_the_map_and_its_buffers(self, tmp_path: Path) -> None:
        """S5: 1.6 MB of records are cleaned within 24 KB for the map and 64 KB for I/O."""
        clock = ManualClock()
        manager = LogManager(OsDisk(), [str(tmp_path)], clock)
        config = replace(COMPACT, segment_bytes=400_000)
        manager.startup(lambda topic: config, node_id=1)
        log = manager.get_or_create(TP, config)
        for n in range(800):
            records = [Record(i, 0, b"%d" % (n * 10 + i), bytes(190)) for i in range(10)]
            log.append_as_leader(build_batch(records), 0)
        log.update_high_watermark(log.log_end_offset)
        settings = CleanerSettings(dedupe_buffer_size=24_000, io_buffer_size=64_000)
        cleaner = LogCleaner(manager, clock, settings)
        log.flush()
        task = cleaner.begin()
        assert isinstance(task, CleaningTask)
        tracemalloc.start()
        try:
            while task is not None:
                task.run()
                task = cleaner.finish(task)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert cleaner.first_dirty_offset(TP) == 900
        assert peak < 24_000 + 4 * 64_000
        manager.shutdown()


class TestDurability:
    def test_what_is_not_on_disk_is_flushed_first(self) -> None:
        """A gap in what is not flushed would look like a loss to recovery."""
        broker = Broker()
        fill(broker)
        assert broker.log.recovery_point == 0
        flush = broker.cleaner.begin()
        assert isinstance(flush, FlushStep)
        assert flush.partition == TP
        flush.run()
        task = broker.cleaner.finish(flush)
        assert broker.log.recovery_point == 13
        points = load_offsets(broker.disk, f"{FOLDER}/{RECOVERY_POINT_CHECKPOINT}")
        assert points == {TP: 13}
        assert isinstance(task, CleaningTask)

    def test_while_another_flush_runs_only_what_is_durable_is_cleaned(self) -> None:
        broker = Broker()
        fill(broker, segments=2)
        broker.log.flush()
        fill(broker, segments=2)
        flush = broker.log.begin_flush()
        assert flush is not None
        task = broker.cleaner.begin()
        assert isinstance(task, CleaningTask)
        assert task.plan.first_uncleanable_offset == 8
        broker.log.finish_flush(flush, None)

    def test_a_flush_that_fails_takes_the_folder_offline(self) -> None:
        broker = Broker()
        fill(broker)
        flush = broker.cleaner.begin()
        assert flush is not None
        broker.disk.fail("sync", "*.log", errno.EIO)
        flush.run()
        assert broker.cleaner.finish(flush) is None
        assert broker.log.failure is not None
        assert broker.cleaner.begin() is None

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_restart_reads_the_same(self, clean: bool) -> None:
        """S5, S7."""
        broker = Broker()
        fill(broker)
        broker.append((b"k0", b"x"), producer_id=3, transactional=True)
        broker.end_txn(3, commit=False)
        broker.append((b"k1", b"x"), producer_id=3, transactional=True)
        broker.end_txn(3, commit=True)
        broker.roll()
        broker.clean()
        before = broker.records(), broker.table(), broker.bases(), broker.log.log_end_offset
        if clean:
            broker.stop()
        else:
            broker.kill()
        broker.start()
        after = broker.records(), broker.table(), broker.bases(), broker.log.log_end_offset
        assert after == before

    def test_what_a_crash_leaves_behind_is_removed_at_the_next_start(self) -> None:
        broker = Broker()
        fill(broker)
        before = broker.records()
        task = broker.begin()
        task.run()
        task.run()
        assert task.error is None
        assert leftovers(broker) != []
        broker.kill()
        broker.start()
        assert leftovers(broker) == []
        assert broker.records() == before


class TestMeanwhile:
    def test_appends_and_rolls_go_on(self) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        broker.append((b"k0", b"meanwhile"))
        broker.roll()
        broker.append((b"k1", b"meanwhile"))
        run_all(broker, task)
        assert checkpoint(broker) == {TP: 12}
        assert broker.offsets() == [8, 9, 10, 11, 12, 13, 14]

    def test_on_a_thread(self, tmp_path: Path) -> None:
        """Off the event loop: the log is used while segments are read and written."""
        clock = ManualClock()
        manager = LogManager(OsDisk(), [str(tmp_path)], clock)
        config = replace(COMPACT, segment_bytes=4000)
        manager.startup(lambda topic: config, node_id=1)
        log = manager.get_or_create(TP, config)
        cleaner = LogCleaner(manager, clock, CleanerSettings(io_buffer_size=1000))
        table: dict[bytes | None, bytes | None] = {}

        def append(n: int) -> None:
            key, value = b"%d" % (n % 17), b"%d" % n
            log.append_as_leader(build_batch([Record(0, 0, key, value)]), 0)
            log.update_high_watermark(log.log_end_offset)
            table[key] = value

        with ThreadPoolExecutor(1) as pool:
            for n in range(20):
                task = cleaner.begin()
                while task is not None:
                    running = pool.submit(task.run)
                    for value in range(50):
                        append(1000 * n + value)
                    running.result()
                    assert task.error is None
                    task = cleaner.finish(task)
                append(1000 * n + 500)
                clock.advance(config.file_delete_delay_ms)
                log.purge_deleted()
        assert cleaner.logs_cleaned > 3
        assert {record.key: record.value for record in read_all(log)} == table
        assert cleaner.uncleanable == {}
        manager.shutdown()

    def test_segments_that_retention_took_are_not_brought_back(self) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        task.run()
        task.run()
        broker.log.increment_log_start_offset(5)
        broker.log.delete_old_segments()
        assert broker.cleaner.finish(task) is None
        assert broker.bases() == [4, 8, 12]
        assert leftovers(broker) == []
        assert checkpoint(broker) == {}
        assert broker.clean() == 1
        assert broker.table()[b"k3"] == b"v2"

    def test_a_file_that_is_gone_while_it_is_read_ends_the_cleaning_quietly(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        broker.log.increment_log_start_offset(5)
        broker.log.delete_old_segments()
        task.run()
        assert isinstance(task.error, FileNotFoundError)
        assert broker.cleaner.finish(task) is None
        assert broker.cleaner.uncleanable == {}
        assert broker.log.failure is None
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    @pytest.mark.parametrize("told", [True, False])
    @pytest.mark.parametrize("offset", [2, 9, 11, 12])
    def test_a_truncated_log_is_not_changed(self, offset: int, told: bool) -> None:
        """R4: the map may know offsets that are not there any more."""
        broker = Broker()
        fill(broker)
        task = broker.begin()
        task.run()
        broker.manager.truncate_to(TP, offset)
        if told:
            broker.cleaner.truncated(TP, offset)
        before = broker.records()
        task.run()
        following = broker.cleaner.finish(task)
        if offset == 12 and not told:
            # Only what was never to be cleaned is gone.
            assert following is None
            assert broker.offsets() == [8, 9, 10, 11]
            return
        assert following is None
        assert broker.records() == before
        assert leftovers(broker) == []
        assert checkpoint(broker) == {}

    def test_a_log_that_was_truncated_and_grew_again_is_not_changed(self) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        task.run()
        broker.manager.truncate_to(TP, 11)
        broker.append((b"k3", b"another value"))
        broker.roll()
        before = broker.records()
        assert broker.bases() == [0, 4, 8, 12]
        task.run()
        assert broker.cleaner.finish(task) is None
        assert broker.records() == before

    def test_truncation_lowers_the_checkpoint(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.manager.truncate_to(TP, 10)
        broker.cleaner.truncated(TP, 10)
        assert checkpoint(broker) == {TP: 10}
        broker.append((b"k0", None), (b"k1", b"again"))
        broker.roll()
        assert broker.clean() == 1
        broker.advance(COMPACT.delete_retention_ms)
        broker.append((b"k2", b"-"))
        broker.roll()
        assert broker.clean() == 1
        assert broker.table() == {b"k1": b"again", b"k2": b"-"}

    def test_a_truncation_above_the_checkpoint_changes_nothing(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.cleaner.truncated(TP, 13)
        assert checkpoint(broker) == {TP: 12}

    def test_a_deleted_topic_leaves_nothing_to_one_of_the_same_name(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.cleaner.deleted(TP)
        assert checkpoint(broker) == {}
        broker.manager.delete(TP)
        broker.log = broker.create(TP)
        assert broker.cleaner.first_dirty_offset(TP) is None

    def test_nor_where_nobody_told_the_cleaner(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.manager.delete(TP)
        broker.log = broker.create(TP)
        fill(broker, segments=6)
        assert broker.cleaner.first_dirty_offset(TP) is None
        assert broker.clean() == 1
        assert checkpoint(broker) == {TP: 24}

    def test_a_log_that_is_deleted_while_it_is_cleaned(self) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        task.run()
        broker.cleaner.deleted(TP)
        broker.manager.delete(TP)
        task.run()
        assert broker.cleaner.finish(task) is None
        broker.log = broker.create(TP)
        fill(broker)
        assert broker.clean() == 1

    def test_two_at_once_share_memory(self) -> None:
        settings = CleanerSettings(threads=2, dedupe_buffer_size=24 * 8)
        broker = Broker(settings=settings)
        fill(broker)
        fill(broker, broker.create(OTHER))
        fill(broker, broker.create(TopicPartition("accounts", 2)))
        for log in broker.manager:
            log.flush()
        first, second = broker.begin(), broker.begin()
        assert first.partition != second.partition
        assert broker.cleaner.begin() is None
        for task in (first, second):
            task.run()
            assert task.end_offset == 3
            run_all(broker, task)
        assert broker.cleaner.begin() is not None

    def test_a_paused_partition_waits(self) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        task.run()
        broker.cleaner.pause(TP)
        broker.cleaner.pause(TP)
        task.run()
        assert broker.cleaner.finish(task) is None
        assert leftovers(broker) == []
        broker.cleaner.resume(TP)
        assert broker.cleaner.begin() is None
        broker.cleaner.resume(TP)
        assert broker.clean() == 1
        with pytest.raises(ValueError, match="accounts-0 is not paused"):
            broker.cleaner.resume(TP)

    def test_a_pause_during_the_flush_counts_too(self) -> None:
        broker = Broker()
        fill(broker)
        flush = broker.cleaner.begin()
        assert flush is not None
        broker.cleaner.pause(TP)
        flush.run()
        assert broker.cleaner.finish(flush) is None
        assert broker.log.recovery_point == 13

    def test_a_closed_cleaner_starts_and_changes_nothing(self) -> None:
        broker = Broker()
        fill(broker)
        before = broker.records()
        task = broker.begin()
        task.run()
        task.run()
        broker.cleaner.close()
        assert broker.cleaner.finish(task) is None
        assert broker.records() == before
        assert leftovers(broker) == []
        assert broker.cleaner.begin() is None


class TestThrottle:
    def test_reads_and_writes_keep_to_the_rate(self) -> None:
        """S5: `log.cleaner.io.max.bytes.per.second`."""
        settings = CleanerSettings(io_max_bytes_per_second=20_000, io_buffer_size=8192)
        broker = Broker(settings=settings)
        for n in range(100):
            broker.append((b"%d" % n, bytes(300)))
        broker.roll()
        task = broker.begin()
        run_all(broker, task)
        stats = task.stats
        spent = (stats.map_bytes_read + stats.bytes_read + stats.bytes_written) / 20_000
        assert spent > 4
        assert sum(broker.slept) == pytest.approx(spent, abs=0.6)
        assert max(broker.slept) <= 0.25

    def test_a_napping_cleaning_can_be_stopped(self) -> None:
        settings = CleanerSettings(io_max_bytes_per_second=1, io_buffer_size=8192)
        broker = Broker(settings=settings)
        for n in range(20):
            broker.append((b"%d" % n, bytes(500)))
        broker.roll()
        task = broker.begin()

        def sleep(seconds: float) -> None:
            broker.slept.append(seconds)
            if len(broker.slept) == 3:
                broker.cleaner.pause(TP)

        task._sleep = sleep
        task.run()
        assert len(broker.slept) == 3
        assert "was stopped" in str(task.error)
        assert broker.cleaner.finish(task) is None
        assert broker.cleaner.uncleanable == {}


class TestErrors:
    def corrupt(self, broker: Broker) -> None:
        segment = broker.log.local.segments.first
        segment.file.write_at(b"\xff", segment.size - 1)

    def test_one_log_that_cannot_be_cleaned_does_not_stop_the_others(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """S5. What is damaged is not given a new CRC."""
        broker = Broker()
        fill(broker)
        fill(broker, broker.create(OTHER))
        self.corrupt(broker)
        assert broker.clean() == 1
        assert checkpoint(broker) == {OTHER: 12}
        assert list(broker.cleaner.uncleanable) == [TP]
        assert "CRC" in broker.cleaner.uncleanable[TP]
        assert "accounts-0 is not compacted any more" in caplog.text
        assert "penstock dump-log" in caplog.text
        assert leftovers(broker) == []
        assert broker.log.failure is None
        assert broker.cleaner.begin() is None

    def test_the_next_start_tries_again(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        self.corrupt(broker)
        broker.append((b"k0", b"x"))
        broker.roll()
        assert broker.clean() == 0
        broker.stop()
        broker.start()
        assert broker.cleaner.uncleanable == {}
        assert broker.cleaner.begin() is not None

    def test_a_topic_that_is_made_anew_is_cleanable_again(self) -> None:
        broker = Broker()
        fill(broker)
        self.corrupt(broker)
        broker.clean()
        broker.manager.delete(TP)
        broker.log = broker.create(TP)
        fill(broker)
        assert broker.clean() == 1
        assert broker.cleaner.uncleanable == {}

    def test_a_full_disk_is_tried_again_later(self, caplog: pytest.LogCaptureFixture) -> None:
        broker = Broker()
        fill(broker)
        before = broker.records()
        broker.disk.fail("write", "*.cleaned", errno.ENOSPC, partial=10)
        assert broker.clean() == 0
        assert "no space for the new segment. Free some" in caplog.text
        assert broker.log.failure is None
        assert broker.cleaner.uncleanable == {}
        assert broker.records() == before
        assert leftovers(broker) == []
        broker.disk.heal()
        assert broker.cleaner.begin() is None
        broker.advance(broker.settings.backoff_ms)
        assert broker.clean() == 1

    def test_an_io_error_takes_the_folder_offline_and_no_other(self) -> None:
        broker = Broker(folders=("/one", "/two"))
        fill(broker)
        other = broker.create(OTHER)
        fill(broker, other)
        assert other.folder.startswith("/two")
        broker.disk.fail("write", "/one/*.cleaned", errno.EIO)
        assert broker.clean() == 1
        assert broker.log.failure is not None
        assert other.failure is None
        assert checkpoint(broker, "/two") == {OTHER: 12}
        # What was acknowledged stays readable.
        assert len(broker.offsets()) == 13

    def test_a_file_that_cannot_be_removed_takes_the_folder_offline(self) -> None:
        """With a `.cleaned` file beside it, a crash in a later swap could not be told from one
        that was not complete."""
        broker = Broker()
        fill(broker)
        broker.disk.fail("write", "*.cleaned", errno.ENOSPC)
        broker.disk.fail("remove", "*.cleaned", errno.EIO)
        assert broker.clean() == 0
        assert broker.log.failure is not None

    def test_a_swap_that_fails_takes_the_folder_offline(self) -> None:
        broker = Broker()
        fill(broker)
        broker.disk.fail("rename", "*.cleaned", errno.EIO)
        assert broker.clean() == 0
        assert broker.log.failure is not None
        assert checkpoint(broker) == {}

    def test_a_checkpoint_that_cannot_be_written_takes_the_folder_offline(self) -> None:
        broker = Broker()
        fill(broker)
        broker.disk.fail("write", f"*/{CLEANER_OFFSET_CHECKPOINT}*", errno.EIO)
        broker.clean()
        assert not broker.manager.dirs[0].online

    def test_records_without_key_are_told(self, caplog: pytest.LogCaptureFixture) -> None:
        broker = Broker(LogConfig())
        broker.append((None, b"1"), (b"a", b"1"))
        broker.roll()
        broker.log.config = COMPACT
        assert broker.clean() == 1
        assert "dropped 1 records without a key" in caplog.text


class TestDeletion:
    def test_segments_below_the_log_start_are_deleted_and_not_cleaned(self) -> None:
        """S4, S5."""
        broker = Broker()
        fill(broker)
        broker.log.increment_log_start_offset(9)
        assert broker.clean() == 1
        assert broker.bases() == [8, 12]
        assert broker.offsets() == [9, 10, 11, 12]

    def test_compaction_and_retention_together(self) -> None:
        both = frozenset({"compact", "delete"})
        broker = Broker(replace(COMPACT, cleanup_policy=both, retention_ms=5000))
        broker.append((b"old", b"1"))
        broker.append((b"k", b"1"))
        broker.roll()
        broker.advance(3000)
        broker.append((b"k", b"2"))
        broker.append((b"k", b"3"))
        broker.roll()
        broker.append((b"active", b"-"))
        assert broker.clean() == 1
        assert broker.pairs() == [(b"old", b"1"), (b"k", b"3"), (b"active", b"-")]
        broker.advance(5001)
        broker.append((b"active", b"+"))
        broker.log.delete_old_segments()
        assert broker.pairs() == [(b"active", b"-"), (b"active", b"+")]
        assert broker.cleaner.begin() is None
        broker.roll()
        assert broker.clean() == 1
        assert checkpoint(broker) == {TP: broker.log.log_end_offset}
