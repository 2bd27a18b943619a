"""Crashes between the steps of staged operations, whose syncs run on another thread (S7)."""

from random import Random

from penstock.core.ids import TopicPartition
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.cleaner.steps import SwapStep
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from tests.crash.harness import CrashTest, open_logs
from tests.crash.test_crash_points import COMPACTED
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.log_workloads import TINY, TP, Scene
from tests.support.storage.logs import read_all


def test_epochs_that_are_not_stored_when_records_are_deleted() -> None:
    """S4, S7: between DeleteRecords and the next flush the file has epochs too many.

    A start cuts them off, by the log start offset that it finds, so that the same is known as
    with a file that was written.
    """
    disk = CrashDisk()
    scene = Scene(disk, TINY)
    scene.create()
    for epoch in range(4):
        scene.leader_epoch = epoch
        scene.append(10, 10)
    scene.flush()
    scene.leader_epoch = 5
    scene.append(10, 10)
    scene.delete_records(5)
    scene.checkpoint()
    log = scene.log()
    expected = [(2, 5), (3, 6), (5, 8)]
    assert log.epochs.entries() == expected
    assert log.epochs.is_stale
    stale = disk.image(CrashMode.WRITTEN)
    scene.flush()
    assert not log.epochs.is_stale
    for image in (stale, disk.image(CrashMode.WRITTEN), disk.image(CrashMode.DURABLE)):
        again = open_logs(image, scene).get(TP)
        assert again is not None
        assert again.log_start_offset == 5
        assert again.epochs.entries() == expected


def test_a_kill_at_each_step_of_a_deletion_and_after_it() -> None:
    """S7: records of a deleted topic do not reappear in another topic of its name."""

    def work(scene: Scene) -> None:
        other_partition = TopicPartition("other", 1)
        for partition in (TP, other_partition):
            scene.create(partition)
            scene.append(400, 400, partition=partition)
            scene.append(600, partition=partition)
            scene.flush(partition)
        scene.checkpoint()
        operation = scene.manager.begin_deletion([TP])
        history = scene.histories[TP]

        def delete() -> None:
            while not operation.advance():
                scene.append(10, partition=other_partition)
                scene.manager.dirs[0].checkpoint()
                operation.run()

        history.vanish(delete)
        assert operation.result == []
        scene.create()
        scene.append(10)
        scene.flush()
        scene.checkpoint()

    assert CrashTest(TINY).run(work).recovered > 40


def test_a_log_is_used_while_its_segments_are_replaced() -> None:
    """S5, S7: a crash between any two steps leaves the old segments or the new ones."""
    disk = CrashDisk()
    scene = Scene(disk, COMPACTED)
    scene.create()
    for n in range(9):
        scene.append(100, 30, keys=[b"abc"[n % 3 : n % 3 + 1], b"z"], producer=1)
        if n % 3 == 2:
            scene.flush_and_roll()
    scene.append(10, keys=[b"y"])
    log = scene.log()
    cleaner = LogCleaner(scene.manager, scene.clock)
    task = cleaner.begin()
    turns = 0
    while task is not None:
        task.run()
        task = cleaner.finish(task)
        if isinstance(task, SwapStep):
            turns += 1
            scene.append(100, keys=[b"n"], producer=2)
            assert log.begin_flush() is None, "the log is held"
            assert delete_old_segments(log) == []
        expected = as_table(log)
        for seed in range(3):
            for mode in (CrashMode.WRITTEN, CrashMode.TORN):
                again = open_logs(disk.image(mode, Random(seed)), scene).get(TP)
                assert again is not None
                result = as_table(again)
                assert {key: result[key] for key in (b"a", b"b", b"c", b"z")} == {
                    key: expected[key] for key in (b"a", b"b", b"c", b"z")
                }
                if mode is CrashMode.WRITTEN:
                    assert result == expected
    assert turns >= 4
    assert cleaner.logs_cleaned == 1
    assert log.begin_flush() is not None


def as_table(log: Log) -> dict[bytes | None, int]:
    """The last offset of each key."""
    return {record.key: record.offset for record in read_all(log)}
