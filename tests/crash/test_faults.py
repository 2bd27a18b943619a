"""A disk fails: one log directory goes offline, acknowledged records stay readable.

`test_lack_of_room` is about disks that fill up.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import NamedTuple

import pytest

from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.records.compress import Compression
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log.timestamp_search import offset_for_timestamp, offset_of_max_timestamp
from penstock.storage.log.truncation import begin_full_truncation, begin_truncation
from tests.crash.harness import check_logs, open_logs, with_crash_point
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.log_dirs import run_maintenance
from tests.support.storage.log_model import StoredBatch, stored_batches
from tests.support.storage.log_workloads import TINY, Scene, data_batch

HIT = TopicPartition("hit", 0)
SPARED = TopicPartition("spared", 0)
NEIGHBOUR = TopicPartition("neighbour", 0)

EIO = errno.EIO
TRUNCATED_TO = 3


class Case(NamedTuple):
    """An operation that fails, and the fault."""

    operation: str
    pattern: str
    error: int
    work: Callable[[Scene], object]
    partial: int | None = None
    raises: bool = True
    """False: the directory goes offline without an exception for the caller."""


def append(scene: Scene) -> None:
    scene.append(200, 30, partition=HIT)


def append_and_roll(scene: Scene) -> None:
    for _ in range(10):
        scene.append(300, partition=HIT, producer=1)


def fill_an_index(scene: Scene) -> None:
    for _ in range(10):
        scene.append(120, partition=HIT)


def new_leader(scene: Scene) -> None:
    scene.leader_epoch += 1
    scene.append(10, partition=HIT)
    scene.flush(HIT)


def abort(scene: Scene) -> None:
    scene.append(10, partition=HIT, producer=9, transactional=True)
    scene.end_transaction(9, commit=False, partition=HIT)


def flush(scene: Scene) -> None:
    scene.append(10, partition=HIT)
    scene.flush(HIT)


def flush_sealed(scene: Scene) -> None:
    append_and_roll(scene)
    scene.flush(HIT)


def flush_on_a_thread(scene: Scene) -> None:
    scene.append(10, partition=HIT)
    log = scene.log(HIT)
    task = log.begin_flush()
    assert task is not None
    failed: OSError | None = None
    try:
        task.run()
    except OSError as error:
        failed = error
    log.finish_flush(task, failed)


def truncate(scene: Scene) -> None:
    scene.truncate(TRUNCATED_TO, HIT)


def delete_records(scene: Scene) -> None:
    scene.delete_records(2, HIT)
    scene.flush(HIT)


def retain(scene: Scene) -> None:
    scene.config = replace(TINY, retention_bytes=0)
    log = scene.log(HIT)
    log.config = scene.config
    scene.retain(HIT)


def compact(scene: Scene) -> None:
    log = scene.log(HIT)
    log.config = replace(TINY, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    assert scene.compact(HIT)


def checkpoint(scene: Scene) -> None:
    scene.manager.dirs[0].checkpoint()


def maintenance(scene: Scene) -> None:
    scene.clock.advance(10 * 60 * 1000)
    for log, task in run_maintenance(scene.manager):
        task.run()
        log.finish_flush(task)


def delete_partition(scene: Scene) -> None:
    scene.delete(NEIGHBOUR)


CASES = {
    "append, I/O error": Case("write", "/a/hit-0/*.log", EIO, append),
    "append, I/O error after some bytes": Case("write", "/a/hit-0/*.log", EIO, append, 100),
    "append, I/O error after all bytes": Case("write", "/a/hit-0/*.log", EIO, append, 10_000),
    "append, no block for the offset index": Case(
        "reserve", "/a/hit-0/*.index", EIO, fill_an_index
    ),
    "append, no block for the time index": Case(
        "reserve", "/a/hit-0/*.timeindex", EIO, fill_an_index
    ),
    "roll, no new file": Case("create", "/a/hit-0/*.log", EIO, append_and_roll),
    "roll, no new index": Case("create", "/a/hit-0/*.index", EIO, append_and_roll),
    "roll, index cannot grow": Case("truncate", "/a/hit-0/*.timeindex", EIO, append_and_roll),
    "roll, I/O error": Case("create", "/a/hit-0/*.log", EIO, append_and_roll),
    "roll, no snapshot": Case("write", "/a/hit-0/*.snapshot", EIO, append_and_roll),
    "new epoch, no checkpoint": Case("write", "/a/hit-0/leader-epoch*", EIO, new_leader, 3),
    "new epoch, rename fails": Case("rename", "/a/hit-0/leader-epoch*", EIO, new_leader),
    "abort, no transaction index": Case("create", "/a/hit-0/*.txnindex", EIO, abort),
    "abort, torn transaction index": Case("write", "/a/hit-0/*.txnindex", EIO, abort, 20),
    "flush, sync fails": Case("sync", "/a/hit-0/*.log", EIO, flush),
    "flush, sync of a directory fails": Case("sync_directory", "/a/hit-0", EIO, flush),
    "flush, sync of an index fails": Case("sync", "/a/hit-0/*.index", EIO, flush_sealed),
    "flush on a thread": Case("sync", "/a/hit-0/*.log", EIO, flush_on_a_thread),
    "truncate, file": Case("truncate", "/a/hit-0/*.log", EIO, truncate),
    "truncate, removal": Case("rename", "/a/hit-0/*.log", EIO, truncate),
    "truncate, epochs": Case("sync", "/a/hit-0/leader-epoch*", EIO, truncate),
    "truncate, directory": Case("sync_directory", "/a/hit-0", EIO, truncate),
    "truncate, checkpoint": Case("write", "/a/recovery*", EIO, truncate, raises=False),
    "DeleteRecords": Case("sync", "/a/hit-0/leader-epoch*", EIO, delete_records),
    "retention": Case("rename", "/a/hit-0/*.log", EIO, retain),
    "retention, second file": Case("rename", "/a/hit-0/*.index", EIO, retain),
    "compaction, swap": Case("rename", "/a/hit-0/*.log.cleaned", EIO, compact, raises=False),
    "checkpoint, I/O error": Case("write", "/a/recovery*", EIO, checkpoint, 2, raises=False),
    "checkpoint, rename": Case("rename", "/a/replication*", EIO, checkpoint, raises=False),
    "checkpoint, sync": Case("sync_directory", "/a", EIO, checkpoint, raises=False),
    "maintenance": Case("write", "/a/log-start*", EIO, maintenance, raises=False),
    "delete a partition": Case("rename", "/a/neighbour-0", EIO, delete_partition),
}


def read_all(log: Log) -> list[StoredBatch]:
    """Everything that a follower could read."""
    results: list[StoredBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 400, FetchIsolation.LOG_END).records
        if records is None or not records.size:
            break
        results += stored_batches(records.read())
        offset = results[-1].next_offset
    return results


def with_records() -> tuple[CrashDisk, Scene]:
    """Two directories; three partitions with several segments each, most of it flushed."""
    disk = CrashDisk()
    scene = Scene(disk, directories=("/a", "/b"))
    for partition in (HIT, SPARED, NEIGHBOUR):
        scene.create(partition)
        for size in (100, 800, 20, 900, 300, 10):
            scene.append(size, partition=partition)
        scene.flush(partition)
        scene.leader_epoch += 1
        scene.append(40, partition=partition, producer=1)
    scene.delete_records(1, HIT)
    scene.checkpoint()
    scene.append(40, partition=HIT)
    homes = {log.partition: log.directory for log in scene.manager}
    assert homes == {HIT: "/a/hit-0", SPARED: "/b/spared-0", NEIGHBOUR: "/a/neighbour-0"}
    return disk, scene


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mended", ["before the stop", "after it"])
def test_an_io_error_takes_one_directory_offline_and_loses_nothing(name: str, mended: str) -> None:
    """S7: the directory goes offline with a clear error, the other one stays, nothing is lost."""
    case = CASES[name]
    disk, scene = with_records()
    acknowledged = read_all(scene.log(HIT))
    fault = disk.fail(case.operation, case.pattern, case.error, partial=case.partial)
    log = scene.log(HIT)
    if case.raises:
        with pytest.raises(KafkaStorageError) as notifications:
            case.work(scene)
        assert os.strerror(case.error) in notifications.value.message
        assert "/a" in notifications.value.message
        assert notifications.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    else:
        case.work(scene)
    assert fault.calls > 0
    check_offline(scene, log)
    remaining = [
        batch for batch in acknowledged if batch.base_offset >= scene.histories[HIT].most_start
    ]
    if case.work is truncate:
        remaining = [batch for batch in remaining if batch.next_offset <= TRUNCATED_TO]
    check_still_readable(log, remaining, scene)
    check_spared(scene)
    for seed in range(10):
        with with_crash_point(f"seed {seed}"):
            check_logs(open_logs(disk.image(CrashMode.TORN, Random(seed)), scene), scene)
    if mended == "before the stop":
        disk.heal()
    scene.manager.shutdown()
    disk.heal()
    check_after_restart(disk, scene)


def check_offline(scene: Scene, log: Log) -> None:
    """Every change is refused, for all partitions of the directory."""
    first, second = scene.manager.dirs
    assert not first.is_online
    assert second.is_online
    assert scene.manager.online_dirs == [second]
    neighbour = scene.manager.get(NEIGHBOUR)
    for item in filter(None, (log, neighbour)):
        data = data_batch([10], timestamps=[scene.clock.now_ms()])
        changes: list[Callable[[], object]] = [
            partial(item.append_as_leader, data, 9),
            partial(item.append_as_follower, data),
            item.roll,
            begin_truncation(item, 1).complete,
            begin_full_truncation(item, 100).complete,
            partial(item.increment_log_start_offset, item.high_watermark),
            partial(delete_old_segments, item),
        ]
        for change in changes:
            with pytest.raises(KafkaStorageError):
                change()
    with pytest.raises(KafkaStorageError):
        first.create(TopicPartition("another", 0), TINY, None)


def check_still_readable(log: Log, remaining: list[StoredBatch], scene: Scene) -> None:
    """All that was acknowledged and is not being deleted; and nothing that is torn."""
    result = read_all(log)
    allowed = [batch for outcome in scene.histories[HIT].outcomes() for batch in outcome.batches]
    assert all(batch in allowed for batch in result), f"{result}"
    assert [batch for batch in result if batch in remaining] == remaining
    offset_for_timestamp(log, 0)
    offset_of_max_timestamp(log)


def check_spared(scene: Scene) -> None:
    """The other directory's partitions work as if nothing had happened."""
    scene.leader_epoch += 1
    for _ in range(4):
        scene.append(600, partition=SPARED, compression=Compression.ZSTD)
    scene.flush(SPARED)
    scene.truncate(scene.log(SPARED).log_end_offset - 1, SPARED)
    scene.manager.dirs[1].checkpoint()
    for item, task in run_maintenance(scene.manager):
        assert item.partition == SPARED
        task.run()
        item.finish_flush(task)
    another = TopicPartition("another", 0)
    scene.create(another)
    assert another in scene.manager.dirs[1].logs
    scene.append(20, partition=another)


def check_after_restart(disk: CrashDisk, scene: Scene) -> None:
    """After the disk is repaired, a start loads everything, and the partition accepts
    records again."""
    manager = open_logs(disk, scene)
    check_logs(manager, scene)
    log = manager.get(HIT)
    assert log is not None
    before = read_all(log)
    for _ in range(5):
        data = data_batch([500], timestamps=[scene.clock.now_ms()])
        log.append_as_leader(data, 50)
    log.flush()
    manager.shutdown()
    again = open_logs(disk, scene).get(HIT)
    assert again is not None
    assert read_all(again)[:-5] == before
    assert again.log_end_offset == log.log_end_offset


def test_an_error_while_a_partition_is_created() -> None:
    disk, scene = with_records()
    disk.fail("create", "/b/new-0/*.log", EIO)
    new = TopicPartition("new", 0)
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        scene.manager.get_or_create(new, TINY)
    assert [log_dir.is_online for log_dir in scene.manager.dirs] == [True, False]
    disk.heal()
    log = scene.manager.get_or_create(new, TINY)
    assert log.directory == "/a/new-0"


def test_an_error_at_the_start_takes_one_directory_offline() -> None:
    disk, scene = with_records()
    scene.stop()
    disk.fail("open", "/a/hit-0/*.log", EIO)
    scene.start()
    assert [log_dir.is_online for log_dir in scene.manager.dirs] == [False, True]
    scene.append(10, partition=SPARED)
    scene.manager.shutdown()
    disk.heal()
    check_logs(open_logs(disk, scene), scene)


def test_a_clean_stop_that_fails_is_not_clean() -> None:
    """S7: whatever could not be written at the stop is recovered at the next start."""
    disk, scene = with_records()
    disk.fail("sync", "/a/hit-0/*", EIO)
    scene.manager.shutdown()
    names = disk.names("/a")
    assert ".kafka_cleanshutdown" not in names
    assert ".kafka_cleanshutdown" in disk.names("/b")
    disk.heal()
    for seed in range(20):
        with with_crash_point(f"seed {seed}"):
            check_logs(open_logs(disk.image(CrashMode.TORN, Random(seed)), scene), scene)


def test_a_partition_that_cannot_be_understood_is_offline_alone() -> None:
    disk, scene = with_records()
    scene.stop()
    path = "/a/hit-0/partition.metadata"
    disk.open(path, create=True).write_at(b"?", 0)
    scene.start()
    with pytest.raises(KafkaStorageError, match=r"partition\.metadata, line 1"):
        scene.manager.get_or_create(HIT, scene.config)
    assert all(log_dir.is_online for log_dir in scene.manager.dirs)
    scene.append(10, partition=NEIGHBOUR)
    scene.append(10, partition=SPARED)
    scene.manager.shutdown()
    assert ".kafka_cleanshutdown" not in disk.names("/a"), "hit-0 was never recovered"
    disk.remove(path)
    check_logs(open_logs(disk, scene), scene)


def test_a_partition_may_be_deleted_while_it_is_flushed() -> None:
    """The flush does not find its files; that is not a disk error."""
    disk, scene = with_records()
    scene.append(10, partition=NEIGHBOUR)
    log = scene.log(NEIGHBOUR)
    task = log.begin_flush()
    assert task is not None
    scene.delete(NEIGHBOUR)
    scene.pass_time(2000)
    with pytest.raises(OSError) as failed:
        task.run()
    with pytest.raises(KafkaError):
        log.finish_flush(task, failed.value)
    assert all(log_dir.is_online for log_dir in scene.manager.dirs)
    with pytest.raises(KafkaError):
        log.append_as_leader(data_batch([1], timestamps=[0]), 0)
    assert not [name for name in disk.names("/a") if name.startswith("neighbour")]


READS: dict[str, Callable[[Log], object]] = {
    "by offset": lambda log: log.read(4, 100, FetchIsolation.LOG_END),
    "by time": lambda log: offset_for_timestamp(log, 1),
    "the latest": lambda log: offset_of_max_timestamp(log),
    "aborted transactions": lambda log: log.aborted_transactions(0, 100),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_error(name: str) -> None:
    """A disk that cannot be read is offline too, and its readers get the error."""
    disk, scene = with_records()
    scene.append(10, partition=HIT, producer=9, transactional=True)
    scene.end_transaction(9, commit=False, partition=HIT)
    disk.fail("read", "/a/hit-0/*", EIO)
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        READS[name](scene.log(HIT))
    assert [log_dir.is_online for log_dir in scene.manager.dirs] == [False, True]
    disk.heal()
    scene.manager.shutdown()
    check_after_restart(disk, scene)


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("reserve", "*.index"),
        ("reserve", "*.timeindex"),
        ("map", "*.index"),
        ("map", "*.timeindex"),
    ],
)
def test_a_batch_is_refused_before_it_is_written(operation: str, pattern: str) -> None:
    """If an index entry cannot be written: a truncation of the batch could fail, too."""
    disk, scene = with_records()
    log = scene.log(HIT)
    scene.flush(HIT)
    disk.file_cache.shrink(10)
    disk.fail(operation, f"/a/hit-0/{pattern}", errno.EIO)
    disk.fail("truncate", "/a/hit-0/*.log", errno.EIO)
    with pytest.raises(KafkaStorageError, match="hit-0 is offline"):
        fill_an_index(scene)
    end_offset = log.log_end_offset
    active = log.local.segments.active
    assert disk.size(active.log_path) == active.size
    disk.heal()
    scene.manager.shutdown()
    reloaded = open_logs(disk, scene).get(HIT)
    assert reloaded is not None
    assert reloaded.log_end_offset == end_offset
