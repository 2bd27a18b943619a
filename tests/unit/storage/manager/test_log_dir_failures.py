"""Partitions that are deleted, and directories that fail (S1, S4)."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.checkpoint_files import load_offsets
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.manager.log_creation import NewLog
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk
from tests.support.storage.gated_disk import GatedDisk
from tests.support.storage.log_dirs import (
    CLEAN,
    RECOVERY,
    REPLICATION,
    SMALL,
    STARTS,
    TOPIC_ID,
    A,
    B,
    Directory,
    fill,
    remove_deleted_files,
)
from tests.support.storage.logs import batch, offsets


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(str(tmp_path / "logs"))


# --- deleting


def test_a_deleted_partition_is_removed_after_the_delay(directory: Directory) -> None:
    """S4: detached at once, on disk for fetches that are still reading."""
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, None), 15)
        fill(log_dir.create(B, SMALL, None), 1)
        log_dir.delete(A)
        assert list(log_dir.logs) == [B]
        assert not directory.file("a-0").exists()
        (deleted_path,) = Path(directory.path).glob("a-0.*-delete")
        assert len(deleted_path.name) == len("a-0.") + 32 + len("-delete")
        assert directory.checkpoint(REPLICATION) == {"b-11": 1}
        directory.clock.advance(499)
        remove_deleted_files(log_dir)
        assert deleted_path.exists()
        directory.clock.advance(1)
        remove_deleted_files(log_dir)
        assert not deleted_path.exists()
        remove_deleted_files(log_dir)


def test_a_deleted_partition_can_be_created_again(directory: Directory) -> None:
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, None), 15)
        log_dir.delete(A)
        log = log_dir.create(A, SMALL, TOPIC_ID)
        assert log.log_end_offset == 0
        fill(log, 1)
        directory.clock.advance(500)
        remove_deleted_files(log_dir)
        assert offsets(log) == [0]
    with directory.opened() as log_dir:
        assert log_dir.logs[A].topic_id == TOPIC_ID


def test_deleted_directories_are_removed_at_the_next_start(directory: Directory) -> None:
    with directory.opened() as log_dir:
        fill(log_dir.create(A, SMALL, None), 15)
        log_dir.delete(A)
    assert len(list(Path(directory.path).glob("*-delete"))) == 1
    with directory.opened() as log_dir:
        assert log_dir.logs == {}
        assert list(Path(directory.path).glob("*-delete")) == []


def test_a_topic_with_the_longest_name(directory: Directory) -> None:
    """The directory's new name must fit too: a file system allows 255 bytes."""
    longest = TopicPartition("t" * 249, 12)
    with directory.opened() as log_dir:
        fill(log_dir.create(longest, SMALL, None), 1)
        log_dir.delete(longest)
        assert log_dir.is_online
        (deleted_path,) = Path(directory.path).glob("*-delete")
        assert len(deleted_path.name) <= 255
        directory.clock.advance(500)
        remove_deleted_files(log_dir)
        assert list(Path(directory.path).glob("t*")) == []


def test_a_deleted_log_accepts_no_more_records(directory: Directory) -> None:
    """A caller that still has it would write into files that are about to be removed."""
    with directory.opened() as log_dir:
        log = log_dir.create(A, SMALL, None)
        fill(log, 3)
        log_dir.delete(A)
        with pytest.raises(KafkaStorageError, match="deleted"):
            log.append_as_leader(batch(b"late"), 0)
        assert offsets(log) == [0, 1, 2]
        assert log_dir.is_online


def test_a_partition_that_is_deleted_while_it_is_flushed(tmp_path: Path) -> None:
    """S1: the flush finds no directory any more; that is no failure of the disk."""
    disk = GatedDisk()
    directory = Directory(str(tmp_path / "logs"), disk)
    with directory.opened() as log_dir, ThreadPoolExecutor(1) as pool:
        log = log_dir.create(A, SMALL, None)
        other_log = log_dir.create(B, SMALL, None)
        fill(log, 25)
        task = log.begin_flush()
        assert task is not None
        running = pool.submit(task.run)
        try:
            assert disk.reached.wait(60)
            log_dir.delete(A)
        finally:
            disk.gate.set()
        error = running.exception(10)
        assert isinstance(error, FileNotFoundError)
        with pytest.raises(KafkaStorageError, match="a-0 was deleted"):
            log.finish_flush(task, error)
        assert log_dir.is_online
        fill(other_log, 1)


# --- failure


def test_a_failure_takes_the_whole_directory_offline() -> None:
    """S1: all partitions share the disk; acknowledged records stay readable."""
    disk = CrashDisk()
    log_dir = Directory("/logs", disk).open()
    a, b = (log_dir.create(partition, SMALL, None) for partition in (A, B))
    fill(a, 3)
    fill(b, 3)
    disk.fail("write", "/logs/a-0/*.log", errno.EIO)
    with pytest.raises(KafkaStorageError, match="a-0 is offline"):
        fill(a, 1)
    disk.heal()
    assert not log_dir.is_online
    assert log_dir.error is not None
    with pytest.raises(KafkaStorageError, match="/logs is offline"):
        fill(b, 1)
    assert offsets(a) == offsets(b) == [0, 1, 2]
    for change in (
        lambda: log_dir.create(TopicPartition("c", 0), SMALL, None),
        lambda: log_dir.delete(A),
    ):
        with pytest.raises(KafkaStorageError):
            change()
    assert not disk.exists("/logs/c-0")
    log_dir.close()
    assert not disk.exists(f"/logs/{CLEAN}"), "it was no clean stop"


def test_a_failure_while_opening(tmp_path: Path) -> None:
    disk = CrashDisk()
    with Directory("/logs", disk).opened() as log_dir:
        for partition in (A, B):
            fill(log_dir.create(partition, SMALL, None), 3)
    disk.fail("read", "/logs/b-11/*", errno.EIO)
    log_dir = Directory("/logs", disk).open()
    assert not log_dir.is_online
    disk.heal()
    with pytest.raises(KafkaStorageError):
        fill(log_dir.logs[A], 1)
    log_dir.close()
    with Directory("/logs", disk).opened() as log_dir:
        assert [log.log_end_offset for log in log_dir.logs.values()] == [3, 3]


@pytest.mark.parametrize("name", [RECOVERY, REPLICATION, STARTS])
def test_a_checkpoint_that_cannot_be_written(name: str) -> None:
    disk = CrashDisk()
    log_dir = Directory("/logs", disk).open()
    fill(log_dir.create(A, SMALL, None), 3)
    disk.fail("write", f"/logs/{name}*", errno.EIO)
    log_dir.checkpoint()
    assert not log_dir.is_online
    with pytest.raises(KafkaStorageError):
        fill(log_dir.logs[A], 1)
    log_dir.close()


def test_a_create_that_fails(tmp_path: Path) -> None:
    disk = CrashDisk()
    log_dir = Directory("/logs", disk).open()
    disk.fail("create", "/logs/a-0*", errno.EIO)
    with pytest.raises(KafkaStorageError, match="is offline"):
        log_dir.create(A, SMALL, None)
    assert log_dir.logs == {}
    assert not log_dir.is_online
    log_dir.close()


@pytest.mark.parametrize("pattern", ["/logs/a-0", "/logs/a-0/*.log", "/logs/a-0/*.timeindex"])
def test_a_create_without_room_leaves_nothing(pattern: str) -> None:
    disk = CrashDisk()
    log_dir = Directory("/logs", disk).open()
    disk.fail("create", pattern, errno.ENOSPC)
    with pytest.raises(KafkaStorageError, match="free space in /logs"):
        log_dir.create(A, SMALL, None)
    assert (log_dir.logs, log_dir.is_online) == ({}, True)
    assert "a-0" not in disk.names("/logs")
    disk.heal()
    fill(log_dir.create(A, SMALL, None), 3)
    log_dir.close()
    assert disk.exists(f"/logs/{CLEAN}")


def test_a_checkpoint_without_room_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    disk = CrashDisk()
    directory = Directory("/logs", disk)
    log_dir = directory.open()
    log = log_dir.create(A, SMALL, None)
    fill(log, 3)
    disk.fail("write", "/logs/recovery*", errno.ENOSPC)
    for _ in range(5):
        log_dir.checkpoint()
    assert log_dir.is_online
    assert caplog.text.count("/logs has no room (No space left on device)") == 1
    fill(log, 1)
    log.flush()
    log_dir.close()
    assert not disk.exists(f"/logs/{CLEAN}"), "the offsets in the checkpoints are old"
    disk.heal()
    with Directory("/logs", disk).opened() as again:
        assert offsets(again.logs[A]) == [0, 1, 2, 3]


def test_no_log_is_created_while_the_offsets_of_a_deleted_one_are_stored() -> None:
    """A crash would attribute its recovery point to the new log of the same name."""
    disk = CrashDisk()
    broker = LogManager(disk, ["/logs"], ManualClock())
    broker.startup(lambda topic: SMALL, node_id=1)
    log = broker.get_or_create(A, SMALL)
    fill(log, 30)
    log.flush()
    broker.dirs[0].checkpoint()
    disk.fail("write", "/logs/recovery*", errno.ENOSPC)
    broker.delete(A)
    assert broker.get(A) is None
    creation = broker.begin_create([NewLog(A, SMALL)])
    creation.run()
    assert isinstance(broker.finish_create(creation)[A], KafkaStorageError)
    disk.heal()
    creation = broker.begin_create([NewLog(A, SMALL)])
    creation.run()
    assert isinstance(broker.finish_create(creation)[A], Log)
    assert load_offsets(disk, "/logs/recovery-point-offset-checkpoint") == {}
    broker.shutdown()


def test_a_delete_that_fails() -> None:
    """The log is detached, but its directory exists: it is loaded after a restart."""
    disk = CrashDisk()
    log_dir = Directory("/logs", disk).open()
    log = log_dir.create(A, SMALL, None)
    fill(log, 3)
    disk.fail("rename", "/logs/a-0", errno.EIO)
    with pytest.raises(KafkaStorageError, match="/logs is offline"):
        log_dir.delete(A)
    assert log_dir.logs == {}
    assert offsets(log) == [0, 1, 2]
    log_dir.close()
    disk.heal()
    with Directory("/logs", disk).opened() as again:
        assert offsets(again.logs[A]) == [0, 1, 2]


def test_a_stop_that_fails() -> None:
    """S7: a failed flush makes the stop unclean; the other logs are closed too."""
    disk = CrashDisk()
    log_dir = Directory("/logs", disk).open()
    for partition in (A, B):
        fill(log_dir.create(partition, SMALL, None), 3)
    disk.fail("sync", "/logs/a-0/*.log", errno.EIO)
    log_dir.close()
    assert not log_dir.is_online
    assert not disk.exists(f"/logs/{CLEAN}")
    disk.heal()
    with Directory("/logs", disk).opened() as again:
        assert [log.log_end_offset for log in again.logs.values()] == [3, 3]


@pytest.mark.parametrize("pattern", ["/logs/a-0.*", "/logs/b-11/*.deleted"])
def test_a_purge_that_fails(pattern: str) -> None:
    """S1: it takes the directory offline, and does not stop the maintenance."""
    disk = CrashDisk()
    directory = Directory("/logs", disk)
    log_dir = directory.open()
    fill(log_dir.create(A, SMALL, None), 1)
    b = log_dir.create(B, SMALL, None)
    fill(b, 25)
    b.increment_log_start_offset(12)
    delete_old_segments(b)
    log_dir.delete(A)
    directory.clock.advance(500)
    disk.fail("remove", pattern, errno.EIO)
    remove_deleted_files(log_dir)
    assert not log_dir.is_online
    log_dir.close()


def test_a_marker_that_cannot_be_written() -> None:
    disk = CrashDisk()
    log_dir = Directory("/logs", disk).open()
    log_dir.create(A, SMALL, None)
    disk.fail("create", f"/logs/{CLEAN}*", errno.EIO)
    log_dir.close()
    assert not log_dir.is_online
    assert not disk.exists(f"/logs/{CLEAN}")


def test_closing_twice(directory: Directory) -> None:
    log_dir = directory.open()
    fill(log_dir.create(A, SMALL, None), 3)
    log_dir.close()
    other_log = directory.open()
    log_dir.close()
    assert not directory.file(CLEAN).exists(), "the other one has it now"
    other_log.close()
    assert directory.file(CLEAN).exists()
