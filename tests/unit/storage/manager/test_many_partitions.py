"""More partitions than descriptors (X5): files are closed, and opened again when they are used."""

import os
from pathlib import Path

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_creation import NewLog
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.logs import filler, offsets

PARTITIONS = [TopicPartition("t", n) for n in range(60)]
CONFIG = LogConfig(segment_bytes=3000, segment_index_bytes=1200, index_interval_bytes=100)
MAX_OPEN_FILES = 16


def started(directory: Path) -> LogManager:
    manager = LogManager(OsDisk(MAX_OPEN_FILES), [str(directory)], ManualClock())
    manager.startup(lambda topic: CONFIG, node_id=1)
    return manager


def created(directory: Path) -> LogManager:
    manager = started(directory)
    creation = manager.begin_create([NewLog(key, CONFIG, None, 0) for key in PARTITIONS])
    creation.run()
    results = manager.finish_create(creation)
    assert all(isinstance(log, Log) for log in results.values())
    return manager


def open_files(directory: Path) -> int:
    """Returns how many files below `directory` this process has open or mapped."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith(str(directory))
        except OSError:
            continue
    return count


def flush_due(manager: LogManager) -> int:
    tasks = manager.maintenance.due_flushes()
    for log, task in tasks:
        task.run()
        log.finish_flush(task)
    return len(tasks)


def append(manager: LogManager, key: TopicPartition, size: int) -> int:
    """Appends to a partition; returns how often it was refused."""
    log = manager.get(key)
    assert log is not None
    for refusals in range(4):
        try:
            log.append_as_leader(filler(size, timestamp=1000 + log.log_end_offset), 0)
        except KafkaStorageError:
            assert flush_due(manager)
        else:
            return refusals
    raise AssertionError("it is refused although logs were flushed")


@pytest.mark.parametrize("clean", [True, False])
def test_many_partitions_share_few_descriptors(tmp_path: Path, clean: bool) -> None:
    manager = created(tmp_path)
    assert open_files(tmp_path) <= MAX_OPEN_FILES + 2
    refusals = 0
    for _ in range(12):
        for key in PARTITIONS:
            refusals += append(manager, key, 500)
            assert open_files(tmp_path) <= MAX_OPEN_FILES + 2
    assert refusals > 0
    expected = list(range(12))
    for key in PARTITIONS:
        log = manager.get(key)
        assert log is not None
        assert offsets(log) == expected
    assert open_files(tmp_path) <= MAX_OPEN_FILES + 2
    if clean:
        manager.shutdown()
    else:
        for log_dir in manager.dirs:
            assert log_dir._lock is not None
            log_dir._lock.release()
        for log in manager:
            log.local.close_handlers()
    assert open_files(tmp_path) == 0
    manager = started(tmp_path)
    assert open_files(tmp_path) <= MAX_OPEN_FILES + 2
    assert [offsets(log) for log in manager] == [expected] * len(PARTITIONS)
    manager.shutdown()


def test_an_idle_partition_has_neither_descriptors_nor_mappings(tmp_path: Path) -> None:
    manager = created(tmp_path)
    for _ in range(3):
        append(manager, PARTITIONS[0], 500)
    manager.disk.file_cache.shrink(1000)
    assert open_files(tmp_path) > 1, "unsynced data keeps its files open"
    assert manager.disk.file_cache.needs_flush
    assert flush_due(manager) == 1
    assert not manager.disk.file_cache.needs_flush
    manager.disk.file_cache.shrink(1000)
    assert open_files(tmp_path) == 1, "the lock"
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert str(tmp_path) not in maps
    manager.shutdown()


def test_a_shutdown_while_all_files_are_unsynced(tmp_path: Path) -> None:
    """Sealing a segment adds an entry to its time index, which must be mapped for that."""
    manager = created(tmp_path)
    refusals = 0
    for key in PARTITIONS:
        log = manager.get(key)
        assert log is not None
        try:
            log.append_as_leader(filler(80), 0)
        except KafkaStorageError:
            refusals += 1
    assert refusals == len(PARTITIONS) - MAX_OPEN_FILES
    manager.shutdown()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    manager = started(tmp_path)
    assert sum(log.log_end_offset for log in manager) == MAX_OPEN_FILES
    manager.shutdown()
