"""A disk fills up, or there are no descriptors: what needs room is refused, and works again later.

The log directory stays online, what was acknowledged stays readable, what was refused is not in the
log, and no restart is needed. A sync of records that fails for lack of space is an exception: it
stops the partition, because the kernel may have dropped what it could not write.
"""

import errno
from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random
from typing import NamedTuple

import pytest

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.log.timestamp_search import offset_for_timestamp, offset_of_max_timestamp
from penstock.storage.manager.log_manager import LogManager
from tests.crash.harness import check_logs, open_logs, with_crash_point
from tests.crash.test_faults import (
    HIT,
    NEIGHBOUR,
    SPARED,
    abort,
    append,
    append_and_roll,
    checkpoint,
    delete_partition,
    fill_an_index,
    flush,
    flush_sealed,
    maintenance,
    new_leader,
    read_all,
    with_records,
)
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.crash_nodes import FileNode
from tests.support.storage.log_workloads import NODE, Scene

ENOSPC, EDQUOT, EMFILE = errno.ENOSPC, errno.EDQUOT, errno.EMFILE


NEW = TopicPartition("new", 0)


def create_partition(scene: Scene) -> None:
    scene.manager.prefer_dir(NEW, "/a")
    scene.create(NEW)


class Case(NamedTuple):
    """An operation for which there is no room."""

    operation: str
    pattern: str
    error: int
    work: Callable[[Scene], object]
    partial: int | None = None
    is_refused: bool = True
    """False: it succeeds without the file that there is no room for."""


CASES = {
    "append, disk full": Case("write", "/a/hit-0/*.log", ENOSPC, append),
    "append, disk full after some bytes": Case("write", "/a/hit-0/*.log", ENOSPC, append, 100),
    "append, disk full after all bytes": Case("write", "/a/hit-0/*.log", EDQUOT, append, 10_000),
    "append, no descriptor": Case("open", "/a/hit-0/*", EMFILE, append),
    "append, no room for the offset index": Case(
        "reserve", "/a/hit-0/*.index", ENOSPC, fill_an_index, is_refused=False
    ),
    "append, no room for the time index": Case(
        "reserve", "/a/hit-0/*.timeindex", ENOSPC, fill_an_index, is_refused=False
    ),
    "append, no descriptor for an index": Case(
        "map", "/a/hit-0/*index", EMFILE, fill_an_index, is_refused=False
    ),
    "roll, no new file": Case("create", "/a/hit-0/*.log", ENOSPC, append_and_roll),
    "roll, no new index": Case("create", "/a/hit-0/*.index", ENOSPC, append_and_roll),
    "roll, no new time index": Case("create", "/a/hit-0/*.timeindex", EDQUOT, append_and_roll),
    "roll, no descriptor for an index": Case("open", "/a/hit-0/*index", EMFILE, append_and_roll),
    "roll, no snapshot": Case(
        "write", "/a/hit-0/*.snapshot", ENOSPC, append_and_roll, 3, is_refused=False
    ),
    "new epoch, no checkpoint": Case("write", "/a/hit-0/leader-epoch*", ENOSPC, new_leader, 3),
    "new epoch, no descriptor": Case("open", "/a/hit-0/leader-epoch*", EMFILE, new_leader),
    "abort, no transaction index": Case(
        "create", "/a/hit-0/*.txnindex", ENOSPC, abort, is_refused=False
    ),
    "abort, torn transaction index": Case(
        "write", "/a/hit-0/*.txnindex", ENOSPC, abort, 20, is_refused=False
    ),
    "flush, no descriptor": Case("open", "/a/hit-0/*.index", EMFILE, flush_sealed),
    "checkpoint, disk full": Case("write", "/a/recovery*", ENOSPC, checkpoint, 2, is_refused=False),
    "checkpoint, no descriptor": Case("open", "/a/repl*", EMFILE, checkpoint, is_refused=False),
    "maintenance": Case("write", "/a/log-start*", ENOSPC, maintenance, is_refused=False),
    "create, disk full": Case("create", "/a/new-0/*.index", ENOSPC, create_partition),
    "create, no descriptor": Case("open", "/a/new-0/*.log", EMFILE, create_partition),
    "delete, no checkpoint": Case(
        "write", "/a/recovery*", ENOSPC, delete_partition, is_refused=False
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_lack_of_room_is_temporary(name: str) -> None:
    case = CASES[name]
    disk, scene = with_records()
    log = scene.log(HIT)
    if case.error == EMFILE:
        scene.flush(HIT)
        disk.file_cache.shrink(10)
    acknowledged = read_all(log)
    disk.file_cache.shrink(10)
    fault = disk.fail(case.operation, case.pattern, case.error, partial=case.partial)
    refused_at = log.log_end_offset
    if case.is_refused:
        for _ in range(3):
            with pytest.raises(KafkaStorageError, match=r"(free space|raise the (quota|limit))"):
                case.work(scene)
            refused_at = log.log_end_offset
    else:
        case.work(scene)
    assert fault.calls > 0
    assert [log_dir.is_online for log_dir in scene.manager.dirs] == [True, True]
    assert log.failure is None
    if case.operation not in ("open", "map"):
        check_readable(scene, acknowledged)
        assert log.log_end_offset == refused_at or not case.is_refused
    for partition in {SPARED, NEIGHBOUR} & {item.partition for item in scene.manager}:
        scene.append(600, partition=partition)
    for seed in range(5):
        with with_crash_point(f"seed {seed}"):
            check_logs(open_logs(disk.image(CrashMode.TORN, Random(seed)), scene), scene)
    disk.heal()
    check_readable(scene, acknowledged)
    check_continues(scene)
    scene.manager.shutdown()
    manager = open_logs(disk, scene)
    check_logs(manager, scene)


def check_readable(scene: Scene, acknowledged: object) -> None:
    assert isinstance(acknowledged, list)
    log = scene.log(HIT)
    assert read_all(log)[: len(acknowledged)] == acknowledged
    offset_for_timestamp(log, 0)
    offset_of_max_timestamp(log)


def check_continues(scene: Scene) -> None:
    """Everything works again: appends, rolls, aborts, epochs, flushes, checkpoints."""
    log = scene.log(HIT)
    before = log.log_end_offset
    append_and_roll(scene)
    abort(scene)
    assert log.log_end_offset == before + 10 + 2
    flush_sealed(scene)
    assert log.recovery_point == log.log_end_offset
    scene.manager.dirs[0].checkpoint()
    assert not scene.manager.dirs[0].has_stale_checkpoint
    if scene.manager.get(NEW) is None:
        create_partition(scene)


@pytest.mark.parametrize("work", [flush, flush_sealed])
@pytest.mark.parametrize("error", [ENOSPC, EDQUOT])
def test_a_sync_of_records_without_space_stops_the_partition_alone(
    work: Callable[[Scene], object], error: int
) -> None:
    """The kernel may have dropped the records, and reports it once: no later sync may succeed."""
    disk, scene = with_records()
    log = scene.log(HIT)
    acknowledged = read_all(log)
    recovery_point = log.recovery_point
    disk.fail("sync", "/a/hit-0/*.log", error)
    with pytest.raises(KafkaStorageError, match="hit-0 is offline"):
        work(scene)
    disk.heal()
    for attempt in (append, flush):
        with pytest.raises(KafkaError):
            attempt(scene)
    assert log.recovery_point == recovery_point
    assert scene.manager.dirs[0].is_online
    check_readable(scene, acknowledged)
    scene.append(100, partition=NEIGHBOUR)
    scene.flush(NEIGHBOUR)
    scene.manager.shutdown()
    check_logs(open_logs(disk, scene), scene)


def drop_unsynced_pages(disk: CrashDisk, pattern: str) -> None:
    """Makes the unsynced changes count as written, as the kernel does after a failed write-back."""
    for name in disk.names("/a/hit-0"):
        if fnmatchcase(name, pattern):
            node = disk._find(f"/a/hit-0/{name}")
            assert isinstance(node, FileNode)
            node.pending.clear()


def reload_logs(scene: Scene) -> list[Exception]:
    """Completes the reloads that are due; returns their errors."""
    errors: list[Exception] = []
    for partition, _, operation in scene.manager.reloads.begin():
        try:
            operation.complete()
        except (KafkaError, OSError) as error:
            errors.append(error)
            scene.manager.reloads.finish(partition, succeeded=False)
        else:
            scene.manager.reloads.finish(partition, succeeded=True)
    return errors


def test_a_stopped_log_is_reloaded_when_there_is_room() -> None:
    """Everything above the recovery point is written and synced again: no crash loses it."""
    disk, scene = with_records()
    stopped_log = scene.log(HIT)
    acknowledged = read_all(stopped_log)
    disk.fail("sync", "/a/hit-0/*.log", ENOSPC)
    with pytest.raises(KafkaStorageError, match="It is recovered when there is room: free space"):
        scene.flush(HIT)
    drop_unsynced_pages(disk, "*.log")
    (error,) = reload_logs(scene)
    assert isinstance(error, OSError)
    assert reload_logs(scene) == [], "not at once again"
    scene.clock.advance(5000)
    disk.heal()
    assert reload_logs(scene) == []
    log = scene.log(HIT)
    assert log is stopped_log.successor
    assert log.failure is None
    check_readable(scene, acknowledged)
    log.flush()
    for mode in (CrashMode.DURABLE, CrashMode.TORN):
        check_logs(open_logs(disk.image(mode, Random(1)), scene), scene)
        durable_log = open_logs(disk.image(mode, Random(1)), scene).get(HIT)
        assert durable_log is not None
        assert read_all(durable_log)[: len(acknowledged)] == acknowledged
    check_continues(scene)
    scene.manager.shutdown()
    check_logs(open_logs(disk, scene), scene)


def test_a_log_that_has_lost_records_stays_stopped() -> None:
    disk, scene = with_records()
    stopped_log = scene.log(HIT)
    disk.fail("sync", "/a/hit-0/*.log", ENOSPC)
    with pytest.raises(KafkaStorageError, match="hit-0 is offline"):
        scene.flush(HIT)
    disk.heal()
    active = stopped_log.local.segments.active
    node = disk._find(active.log_path)
    assert isinstance(node, FileNode)
    node.data[active.size - 20 : active.size] = bytes(20)
    (error,) = reload_logs(scene)
    assert "has lost the records from" in str(error)
    scene.clock.advance(60_000)
    assert reload_logs(scene) == []
    assert scene.log(HIT) is stopped_log


def test_a_deletion_waits_for_a_reload() -> None:
    disk, scene = with_records()
    disk.fail("sync", "/a/hit-0/*.log", ENOSPC)
    with pytest.raises(KafkaStorageError, match="hit-0 is offline"):
        scene.flush(HIT)
    disk.heal()
    ((partition, _, reloading),) = scene.manager.reloads.begin()
    assert not reloading.advance()
    deletion = scene.manager.begin_deletion([HIT])
    assert not deletion.advance()
    reloading.run()
    assert not reloading.advance()
    deletion.run()
    assert not deletion.advance()
    assert disk.exists("/a/hit-0")
    reloading.run()
    assert reloading.advance()
    assert reloading.result is None
    scene.manager.reloads.finish(partition, succeeded=True)
    deletion.complete()
    assert not disk.exists("/a/hit-0")
    assert scene.manager.get(HIT) is None


def start_again(disk: CrashDisk, scene: Scene) -> LogManager:
    """Starts a broker on a disk that may be full."""
    scene.manager = LogManager(disk, scene.directories, scene.clock)
    scene.manager.startup(lambda topic: scene.config, node_id=NODE)
    assert all(log_dir.is_online for log_dir in scene.manager.dirs)
    return scene.manager


@pytest.mark.parametrize("mode", [CrashMode.TORN, CrashMode.DURABLE])
def test_a_log_that_lacks_room_at_the_start_is_loaded_later(mode: CrashMode) -> None:
    """Without another restart, and with everything that was durable."""
    disk, scene = with_records()
    scene.flush(HIT)
    acknowledged = read_all(scene.log(HIT))
    disk = disk.image(mode, Random(3))
    for name in disk.names("/a/hit-0"):
        if name.endswith("index"):
            disk.remove(f"/a/hit-0/{name}")  # recovery writes them
    for operation in ("write", "create", "reserve"):
        disk.fail(operation, "/a/*", ENOSPC)
    manager = start_again(disk, scene)
    assert manager.get(HIT) is None
    with pytest.raises(KafkaStorageError, match="It is loaded when there is room: free space"):
        manager.get_or_create(HIT, scene.config)
    assert manager.get(SPARED) is not None
    errors = reload_logs(scene)
    assert errors
    assert all(isinstance(error, OSError) for error in errors)
    assert reload_logs(scene) == [], "not at once again"
    scene.clock.advance(5000)
    disk.heal()
    assert reload_logs(scene) == []
    assert not any(log_dir.load_errors for log_dir in manager.dirs)
    check_readable(scene, acknowledged)
    check_logs(manager, scene)
    check_continues(scene)
    manager.shutdown()
    check_logs(open_logs(disk, scene), scene)


def test_a_log_that_lacks_room_at_the_start_can_be_deleted() -> None:
    disk, scene = with_records()
    disk = disk.image(CrashMode.TORN, Random(3))
    disk.remove("/a/hit-0/00000000000000000000.index")
    disk.fail("create", "/a/hit-0/*", ENOSPC)
    manager = start_again(disk, scene)
    disk.heal()
    ((partition, _, loading),) = manager.reloads.begin()
    assert not loading.advance()
    deletion = manager.begin_deletion([HIT])
    assert not deletion.advance()
    loading.run()
    assert loading.advance()
    assert loading.result is None
    manager.reloads.finish(partition, succeeded=True)
    deletion.complete()
    assert manager.get(HIT) is None
    assert not disk.exists("/a/hit-0")


def test_a_loss_is_not_forgotten_if_there_was_no_room_to_store_it() -> None:
    disk, scene = with_records()
    disk = disk.image(CrashMode.TORN, Random(3))
    disk.fail("create", "/a/.penstock_boot_id*", ENOSPC)
    manager = start_again(disk, scene)
    assert manager.get(HIT) is not None
    assert manager.dirs[0].may_have_lost_records
    disk.heal()
    manager.shutdown()
    assert start_again(disk, scene).dirs[0].may_have_lost_records
