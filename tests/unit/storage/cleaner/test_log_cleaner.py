"""The log cleaner of a broker: its choice of logs, its results and its checkpoints (S5)."""

import errno
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.checkpoint.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    load_offsets,
)
from penstock.storage.cleaner.cleaning_task import CleaningTask
from penstock.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from penstock.storage.cleaner.steps import CheckpointStep, FlushStep
from penstock.storage.disk import OsDisk
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log.timestamp_search import offset_for_timestamp
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.cleaning import (
    COMPACT,
    DIRECTORY,
    TP,
    Broker,
    checkpoint,
    fill,
    leftovers,
    run_all,
)
from tests.support.storage.logs import headers_of, read_all, remove_deleted_segments

OTHER = TopicPartition("accounts", 1)


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

    def test_a_cleaning_continues_in_the_middle_of_a_segment(self) -> None:
        """It starts where the map was full; later segments are read from their beginnings."""
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
        broker = Broker()
        for offset in (0, 1, 10):
            if offset == 10:
                broker.log.local.roll(10, broker.clock.now_ms())
            batch = build_batch([Record(offset, 0, b"k", b"v")], base_offset=offset)
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
        file = broker.disk.open(f"{DIRECTORY}/{CLEANER_OFFSET_CHECKPOINT}")
        file.write_at(b"x", 0)
        broker.start()
        assert broker.clean() == 1
        assert "will be cleaned again" in caplog.text
        assert checkpoint(broker) == {TP: 12}

    def test_a_log_is_deleted_although_the_checkpoint_cannot_be_read(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.stop()
        broker.start()
        broker.disk.fail("read", f"*/{CLEANER_OFFSET_CHECKPOINT}", errno.EMFILE)
        broker.manager.delete(TP)
        assert broker.manager.get(TP) is None
        assert "cannot be read (Too many open files)" in caplog.text

    def test_files_keep_the_time_of_the_last_original(self) -> None:
        broker = Broker()
        fill(broker, segments=1)
        written = broker.log.local.segments.first.modified_ms
        broker.advance(60_000)
        assert broker.clean() == 1
        assert broker.log.local.segments.first.modified_ms == written

    def test_an_unchanged_segment_is_not_replaced(self) -> None:
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

    def test_the_log_with_the_largest_dirty_ratio_is_cleaned_first(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.append((b"k0", b"x"))
        broker.roll()
        other_log = broker.create(OTHER)
        fill(broker, other_log)
        assert broker.begin().partition == OTHER

    def test_indexes_of_the_new_segment_find_every_offset(self) -> None:
        broker = Broker(replace(COMPACT, index_interval_bytes=0))
        for n in range(40):
            broker.advance(1)
            broker.append((b"%d" % n, b"v"), (b"%d" % (n % 7), b"w"))
        broker.roll()
        assert broker.clean() == 1
        log = broker.log
        assert log.local.segments.first.indexes.offset_index.entries > 10
        offsets = broker.offsets()
        for offset in range(log.log_end_offset):
            result = read_all(log, start=offset)
            assert [record.offset for record in result] == [o for o in offsets if o >= offset]
        for record in broker.records():
            found_by_time = offset_for_timestamp(log, record.timestamp)
            assert found_by_time is not None
            assert found_by_time.timestamp == record.timestamp

    def test_old_files_can_be_read_until_their_delay_has_passed(self) -> None:
        broker = Broker()
        fill(broker)
        fetched = broker.log.read(0, 10_000, FetchIsolation.LOG_END)
        assert fetched.records is not None
        before = fetched.records.read()
        broker.clean()
        assert fetched.records.read() == before
        assert any(name.endswith(".deleted") for name in broker.disk.names(broker.log.directory))
        broker.advance(COMPACT.file_delete_delay_ms)
        remove_deleted_segments(broker.log)
        assert not any(
            name.endswith(".deleted") for name in broker.disk.names(broker.log.directory)
        )

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
        # Keys a0, b0, a1, a2 and b1: there is no space for the sixth, at offset 6.
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

    def test_a_small_log_does_not_use_all_allowed_memory(self) -> None:
        broker = Broker(replace(COMPACT, segment_index_bytes=1000))
        fill(broker)
        tracemalloc.start()
        try:
            broker.clean()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2_000_000 < broker.settings.dedupe_buffer_size

    def test_a_large_log_needs_the_map_and_its_buffers(self, tmp_path: Path) -> None:
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
        assert isinstance(task, CheckpointStep)
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
    def test_unflushed_segments_are_flushed_first(self) -> None:
        """Recovery would take a gap in unflushed records for a loss."""
        broker = Broker()
        fill(broker)
        assert broker.log.recovery_point == 0
        flush = broker.cleaner.begin()
        assert isinstance(flush, FlushStep)
        assert flush.partition == TP
        flush.run()
        store = broker.cleaner.finish(flush)
        assert isinstance(store, CheckpointStep)
        assert broker.log.recovery_point == 13
        store.run()
        task = broker.cleaner.finish(store)
        points = load_offsets(broker.disk, f"{DIRECTORY}/{RECOVERY_POINT_CHECKPOINT}")
        assert points == {TP: 13}
        assert isinstance(task, CleaningTask)

    def test_during_a_flush_only_durable_segments_are_cleaned(self) -> None:
        broker = Broker()
        fill(broker, segments=2)
        broker.log.flush()
        fill(broker, segments=2)
        flush = broker.log.begin_flush()
        assert flush is not None
        task = broker.begin()
        assert task.plan.first_uncleanable_offset == 8
        broker.log.finish_flush(flush, None)

    def test_a_flush_that_fails_takes_the_directory_offline(self) -> None:
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

    def test_files_left_by_a_crash_are_removed_at_the_next_start(self) -> None:
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
        delete_old_segments(broker.log)
        assert broker.pairs() == [(b"active", b"-"), (b"active", b"+")]
        assert broker.cleaner.begin() is None
        broker.roll()
        assert broker.clean() == 1
        assert checkpoint(broker) == {TP: broker.log.log_end_offset}
