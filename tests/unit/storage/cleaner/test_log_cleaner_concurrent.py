"""The cleaner while its logs go on, are truncated or deleted, or their disk fails (S5)."""

import errno
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.checkpoint.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
)
from penstock.storage.cleaner.cleaning_task import CleaningTask
from penstock.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from penstock.storage.disk import OsDisk
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.cleaning import COMPACT, TP, Broker, checkpoint, fill, leftovers, run_all
from tests.support.storage.logs import read_all, remove_deleted_segments

OTHER = TopicPartition("accounts", 1)


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
            for n in range(8):
                for value in range(50):
                    append(1000 * n + value)
                task = cleaner.begin()
                while task is not None:
                    running = pool.submit(task.run)
                    for value in range(50, 100 if isinstance(task, CleaningTask) else 55):
                        append(1000 * n + value)
                    running.result()
                    assert not isinstance(task, CleaningTask) or task.error is None
                    task = cleaner.finish(task)
                clock.advance(config.file_delete_delay_ms)
                remove_deleted_segments(log)
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
        delete_old_segments(broker.log)
        assert broker.cleaner.finish(task) is None
        assert broker.bases() == [4, 8, 12]
        assert leftovers(broker) == []
        assert checkpoint(broker) == {}
        assert broker.clean() == 1
        assert broker.table()[b"k3"] == b"v2"

    def test_a_file_removed_while_it_is_read_ends_the_cleaning_silently(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        broker.log.increment_log_start_offset(5)
        delete_old_segments(broker.log)
        task.run()
        assert isinstance(task.error, FileNotFoundError)
        assert broker.cleaner.finish(task) is None
        assert broker.cleaner.uncleanable == {}
        assert broker.log.failure is None
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    @pytest.mark.parametrize("offset", [2, 9, 11])
    def test_a_truncated_log_is_not_changed(self, offset: int) -> None:
        """R4: the map may know offsets that are not there any more."""
        broker = Broker()
        fill(broker)
        task = broker.begin()
        task.run()
        broker.manager.begin_truncation(TP, offset).complete()
        before = broker.records()
        task.run()
        assert broker.cleaner.finish(task) is None
        assert broker.records() == before
        assert leftovers(broker) == []
        assert checkpoint(broker) == {}

    def test_a_truncation_above_the_cleaned_part_is_harmless(self) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        broker.manager.begin_truncation(TP, 12).complete()
        run_all(broker, task)
        assert broker.offsets() == [8, 9, 10, 11]
        assert checkpoint(broker) == {TP: 12}

    def test_a_log_that_was_truncated_and_grew_again_is_not_changed(self) -> None:
        broker = Broker()
        fill(broker)
        task = broker.begin()
        task.run()
        broker.manager.begin_truncation(TP, 11).complete()
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
        broker.manager.begin_truncation(TP, 10).complete()
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
        broker.manager.begin_truncation(TP, 13).complete()
        assert checkpoint(broker) == {TP: 12}

    def test_a_deleted_topic_leaves_nothing_to_one_of_the_same_name(self) -> None:
        broker = Broker()
        fill(broker)
        broker.clean()
        broker.manager.delete(TP)
        assert checkpoint(broker) == {}
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

    def test_a_throttled_cleaning_can_be_cancelled(self) -> None:
        settings = CleanerSettings(io_max_bytes_per_second=1, io_buffer_size=8192)
        broker = Broker(settings=settings)
        for n in range(8):
            broker.append((b"%d" % n, bytes(500)))
        broker.roll()
        task = broker.begin()

        def stop_the_third_time() -> None:
            if len(broker.slept) == 3:
                broker.cleaner.pause(TP)

        broker.on_sleep = stop_the_third_time
        task.run()
        assert len(broker.slept) == 3
        assert "was cancelled" in str(task.error)
        assert broker.cleaner.finish(task) is None
        assert broker.cleaner.uncleanable == {}


class TestErrors:
    def corrupt(self, broker: Broker) -> None:
        segment = broker.log.local.segments.first
        segment.file.write_at(b"\xff", segment.size - 1)

    def test_one_log_that_cannot_be_cleaned_does_not_stop_the_others(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """S5. Damaged records do not get a new CRC."""
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

    def test_a_recreated_topic_is_cleanable_again(self) -> None:
        broker = Broker()
        fill(broker)
        self.corrupt(broker)
        broker.clean()
        broker.manager.delete(TP)
        broker.log = broker.create(TP)
        fill(broker)
        assert broker.clean() == 1
        assert broker.cleaner.uncleanable == {}

    @pytest.mark.parametrize(
        ("operation", "kind", "error", "remedy"),
        [
            ("write", ".log", errno.ENOSPC, "free space in /data"),
            ("truncate", ".index", errno.EDQUOT, "raise the quota of /data"),
            ("map", ".timeindex", errno.ENOMEM, "lower log.cleaner.dedupe.buffer.size"),
            ("open", ".log", errno.EMFILE, "raise the limit of open files"),
        ],
    )
    def test_a_full_disk_is_tried_again_later(
        self, operation: str, kind: str, error: int, remedy: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        fill(broker)
        before = broker.records()
        broker.disk.fail(operation, f"*{kind}.cleaned", error)
        assert broker.clean() == 0
        assert "accounts-0 could not be compacted" in caplog.text
        assert remedy in caplog.text
        assert broker.log.failure is None
        assert broker.cleaner.uncleanable == {}
        assert broker.records() == before
        assert leftovers(broker) == []
        broker.disk.heal()
        assert broker.cleaner.begin() is None
        broker.advance(broker.settings.backoff_ms)
        assert broker.clean() == 1

    def test_an_io_error_takes_the_directory_offline_and_no_other(self) -> None:
        broker = Broker(directories=("/one", "/two"))
        fill(broker)
        other_log = broker.create(OTHER)
        fill(broker, other_log)
        assert other_log.directory.startswith("/two")
        broker.disk.fail("write", "/one/*.cleaned", errno.EIO)
        assert broker.clean() == 1
        assert broker.log.failure is not None
        assert other_log.failure is None
        assert checkpoint(broker, "/two") == {OTHER: 12}
        # Acknowledged records stay readable.
        assert len(broker.offsets()) == 13

    def test_a_file_that_cannot_be_removed_takes_the_directory_offline(self) -> None:
        """With a `.cleaned` file beside it, a crash in a later swap would look like an
        incomplete swap."""
        broker = Broker()
        fill(broker)
        broker.disk.fail("write", "*.cleaned", errno.ENOSPC)
        broker.disk.fail("remove", "*.cleaned", errno.EIO)
        assert broker.clean() == 0
        assert broker.log.failure is not None

    def test_a_swap_that_fails_takes_the_directory_offline(self) -> None:
        broker = Broker()
        fill(broker)
        broker.disk.fail("rename", "*.cleaned", errno.EIO)
        assert broker.clean() == 0
        assert broker.log.failure is not None
        assert checkpoint(broker) == {}

    def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline(self) -> None:
        broker = Broker()
        fill(broker)
        broker.disk.fail("write", f"*/{CLEANER_OFFSET_CHECKPOINT}*", errno.EIO)
        broker.clean()
        assert not broker.manager.dirs[0].is_online

    def test_records_without_a_key_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        broker = Broker(LogConfig())
        broker.append((None, b"1"), (b"a", b"1"))
        broker.roll()
        broker.log.config = COMPACT
        assert broker.clean() == 1
        assert "removed 1 records without a key" in caplog.text

    def test_a_closed_cleaner_receives_no_more_notifications(self) -> None:
        broker = Broker()
        listeners = broker.manager.listeners
        assert broker.cleaner in listeners
        broker.cleaner.close()
        broker.cleaner.close()
        assert broker.cleaner not in listeners
