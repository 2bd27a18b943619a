"""Reads that would block on the disk, and how they are kept off the event loop (Q5)."""

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.storage.disk import OsDisk, OsFile
from penstock.storage.log.read_ahead import ReadAhead
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log.timestamp_search import (
    begin_search,
    finish_search,
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from penstock.storage.log.truncation import begin_truncation
from penstock.storage.log_config import LogConfig
from tests.support.storage.logs import (
    NOW,
    CountingDisk,
    LogDirectory,
    batch,
    filler,
    offsets,
    remove_deleted_segments,
)

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, file_delete_delay_ms=500)


class ColdFile(OsFile):
    """A file that reports that none of it is cached."""

    __slots__ = ()

    def is_cached(self, position: int, size: int) -> bool:
        return False


class ColdDisk(OsDisk):
    def open(self, path: str, *, create: bool = False) -> OsFile:
        return ColdFile(super().open(path, create=create).pin())


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(30):
            log.append_as_leader(filler(100, timestamp=NOW + n), 2)
        log.update_high_watermark(30)
        yield directory


class TestSearch:
    @pytest.mark.parametrize("timestamp", [0, NOW, NOW + 7, NOW + 29])
    def test_on_a_thread(self, directory: LogDirectory, timestamp: int) -> None:
        log = directory.log
        search = begin_search(log, timestamp)
        assert search is not None
        with ThreadPoolExecutor(1) as pool:
            pool.submit(search.run).result()
        assert finish_search(log, search) == offset_for_timestamp(log, timestamp)

    def test_nothing_so_late(self, directory: LogDirectory) -> None:
        search = begin_search(directory.log, NOW + 30)
        assert search is not None
        search.run()
        assert finish_search(directory.log, search) is None

    def test_the_largest_timestamp(self, directory: LogDirectory) -> None:
        log = directory.log
        search = begin_search(log, None)
        assert search is not None
        search.run()
        assert finish_search(log, search) == offset_of_max_timestamp(log)

    def test_no_timestamp_at_all(self, tmp_path: Path) -> None:
        with LogDirectory(tmp_path / "empty", SMALL) as directory:
            assert begin_search(directory.open(), None) is None

    def test_the_segment_is_deleted_during_the_search(self, directory: LogDirectory) -> None:
        """The file is closed, so the search is repeated; deleted records are not returned."""
        log = directory.log
        search = begin_search(log, NOW + 3)
        assert search is not None
        log.increment_log_start_offset(12)
        delete_old_segments(log)
        directory.clock.advance(1000)
        remove_deleted_segments(log)
        search.run()
        assert search.has_failed
        record = finish_search(log, search)
        assert record is not None
        assert (record.offset, record.timestamp) == (12, NOW + 12)

    def test_the_log_is_truncated_during_the_search(self, directory: LogDirectory) -> None:
        log = directory.log
        search = begin_search(log, NOW + 25)
        assert search is not None
        begin_truncation(log, 22).complete()
        search.run()
        assert finish_search(log, search) is None

    def test_appends_go_on(self, directory: LogDirectory) -> None:
        log = directory.log
        search = begin_search(log, NOW + 29)
        assert search is not None
        for n in range(30, 50):
            log.append_as_leader(filler(100, timestamp=NOW + n), 2)
        search.run()
        record = finish_search(log, search)
        assert record is not None
        assert record.offset == 29

    def test_one_that_never_ran(self, directory: LogDirectory) -> None:
        search = begin_search(directory.log, NOW + 5)
        assert search is not None
        record = finish_search(directory.log, search)
        assert record is not None
        assert record.offset == 5


class TestRecent:
    def test_recently_appended_batches_are_found_without_the_file(self, tmp_path: Path) -> None:
        """Q1: a consumer that keeps up costs no read of the log."""
        disk = CountingDisk()
        with LogDirectory(tmp_path, LogConfig(), disk=disk) as directory:
            log = directory.open()
            for n in range(100):
                log.append_as_leader(batch(b"v%d" % n, b"w"), 0)
                log.update_high_watermark(log.log_end_offset)
                data = log.read(2 * n, 1000, FetchIsolation.HIGH_WATERMARK)
                assert data.records is not None
                assert data.size == len(batch(b"v%d" % n, b"w"))
            log.read(100, 1 << 20, FetchIsolation.HIGH_WATERMARK)
            assert not any(name.endswith(".log") for name in disk.read)

    def test_a_truncation_forgets_it(self, directory: LogDirectory) -> None:
        log = directory.log
        begin_truncation(log, 25).complete()
        for _ in range(3):
            log.append_as_leader(filler(130, timestamp=NOW), 3)
        data = log.read(26, 10_000, FetchIsolation.LOG_END).records
        assert data is not None
        assert data.size == 260
        assert offsets(log)[-3:] == [25, 26, 27]

    def test_an_offset_within_a_batch(self, tmp_path: Path) -> None:
        with LogDirectory(tmp_path, LogConfig()) as directory:
            log = directory.open()
            log.append_as_leader(batch(b"a", b"b", b"c"), 0)
            whole = log.read(1, 1000, FetchIsolation.LOG_END)
            assert whole.size == log.size


class TestReadAhead:
    def test_cold_records_are_read_on_a_thread(self, tmp_path: Path) -> None:
        with LogDirectory(tmp_path, SMALL, disk=ColdDisk()) as directory:
            log = directory.open()
            for _ in range(30):
                log.append_as_leader(filler(100), 0)
            assert ReadAhead.of(log, 29, 1000) is None
            ahead = ReadAhead.of(log, 3, 10_000)
            assert ahead is not None
            log.increment_log_start_offset(0)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(ahead.run).result()
            assert log.read(3, 10_000, FetchIsolation.LOG_END).size == 700

    def test_no_read_ahead_for_cached_records(self, directory: LogDirectory) -> None:
        assert ReadAhead.of(directory.log, 3, 1000) is None
        assert ReadAhead.of(directory.log, 30, 1000) is None

    def test_a_lack_of_descriptors_is_a_storage_error(
        self, directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in the read itself: the client must get no unexpected error."""

        def no_descriptor(file: OsFile, position: int, size: int) -> bool:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(OsFile, "is_cached", no_descriptor)
        log = directory.log
        with pytest.raises(KafkaStorageError, match="has no room"):
            ReadAhead.of(log, log.log_start_offset, 1000)
        assert log.failure is None

    def test_the_probe(self, tmp_path: Path) -> None:
        file = OsDisk().open(str(tmp_path / "x"), create=True)
        file.write_at(bytes(1_000_000), 0)
        assert file.is_cached(0, 1_000_000)
        file.close()


def test_a_closed_file_has_no_descriptor(tmp_path: Path) -> None:
    """The number may be another file's by then."""
    file = OsDisk().open(str(tmp_path / "x"), create=True)
    assert file.pin().fileno() >= 0
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.pin()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)


def test_a_search_in_a_log_that_cannot_be_read(directory: LogDirectory) -> None:
    log = directory.log
    for segment in log.local.segments:
        segment.file.close()
    search = begin_search(log, NOW + 3)
    assert search is not None
    search.has_failed = True
    with pytest.raises(KafkaStorageError):
        finish_search(log, search)
