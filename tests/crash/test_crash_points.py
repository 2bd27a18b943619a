"""A crash at every write and every sync of a workload, and recovery from each (S7)."""

from dataclasses import replace
from random import Random

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.compress import Compression
from tests.crash.harness import SEEDS, CrashTest, check_logs, open_logs, with_crash_point
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.log_history import History
from tests.support.storage.log_workloads import TINY, TP, Scene, contents


def test_appends_and_flushes() -> None:
    """S7: flushed records survive byte for byte; of the others a prefix of the batches survives."""

    def work(scene: Scene) -> None:
        scene.create()
        for size in (10, 300, 50, 700, 5):
            scene.append(size)
        scene.flush()
        scene.append(20, 30, 40)
        scene.append(1300)
        scene.checkpoint()
        scene.flush_while(lambda: scene.append(100), lambda: scene.append(10, 10))
        for size in (200, 400, 600, 800):
            scene.append(size)
        scene.checkpoint()
        scene.append(1)

    assert CrashTest(TINY).run(work).recovered > 100


def test_a_roll_right_at_the_recovery_point() -> None:
    """S7: the indexes of a segment that was flushed while it was active are not trusted."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(3):
            scene.append(200)
            scene.append(150)
            scene.flush()
            scene.checkpoint()
            scene.roll()
        scene.checkpoint()
        scene.append(60)
        scene.flush()
        scene.checkpoint()
        scene.append(60)

    assert CrashTest(TINY).run(work).recovered > 100


@pytest.mark.parametrize("index_interval_bytes", [0, 150])
def test_idempotent_and_transactional_producers(index_interval_bytes: int) -> None:
    """P3, P4, S7: sequences, open and aborted transactions match the recovered batches."""

    def work(scene: Scene) -> None:
        scene.create()
        scene.append(40, producer=1)
        scene.append(60, 10, producer=2, transactional=True)
        scene.append(80, producer=1)
        scene.append(100, producer=3, transactional=True)
        scene.append(30)
        scene.flush()
        scene.end_transaction(3, commit=False)
        scene.append(200, producer=2, transactional=True)
        scene.append(20, producer=4, transactional=True)
        scene.checkpoint()
        scene.end_transaction(2, commit=False)
        scene.append(500, producer=1)
        scene.append(300, producer=3, epoch=1, transactional=True)
        scene.end_transaction(4, commit=True)
        scene.flush()
        scene.append(250, producer=1)
        scene.end_transaction(3, commit=False, epoch=1)
        scene.append(10, producer=2, transactional=True)
        scene.checkpoint()
        scene.append(10, producer=1)

    config = replace(TINY, segment_bytes=1000, index_interval_bytes=index_interval_bytes)
    assert CrashTest(config).run(work).recovered > 150


def test_truncations_and_leader_epochs() -> None:
    """R4, S7: truncated records do not reappear, and no crash mixes them with later ones."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(8):
            scene.append(150, producer=5)
        scene.leader_epoch = 2
        scene.append(150)
        scene.append(150)
        scene.flush()
        scene.checkpoint()
        for _ in range(4):
            scene.append(150)
        scene.truncate(9)
        scene.leader_epoch = 4
        for _ in range(3):
            scene.append(150)
        scene.truncate(6)
        scene.leader_epoch = 5
        for _ in range(6):
            scene.append(150, producer=6)
        scene.flush()
        scene.leader_epoch = 7
        scene.append(150)
        scene.truncate(11)
        scene.leader_epoch = 8
        scene.append(150)
        scene.checkpoint()

    assert CrashTest(TINY, seeds=SEEDS or 2).run(work).recovered > 300


def test_truncation_far_below_the_recovery_point() -> None:
    """R4, S7: a crash between the removals of two segments leaves no hole."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(8):
            scene.append(600, producer=5)
        scene.flush()
        scene.checkpoint()
        scene.truncate(1)
        scene.append(600)

    assert CrashTest(TINY, seeds=SEEDS or 3).run(work).recovered > 80


def test_a_log_that_was_truncated_fully() -> None:
    """R4: a follower that is too far behind drops everything and starts with its leader."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(6):
            scene.append(300, producer=5)
        scene.flush()
        scene.checkpoint()
        scene.truncate_fully(40)
        scene.append(100)
        scene.flush()
        for _ in range(4):
            scene.append(300)
        scene.delete_records(43)
        scene.checkpoint()
        scene.truncate_fully(20)
        for _ in range(6):
            scene.append(300)
        scene.flush()
        scene.append(10)

    assert CrashTest(TINY).run(work).recovered > 100


def test_deleted_records_and_retention() -> None:
    """S4, S7: records deleted according to a checkpoint stay deleted, and no others are deleted."""

    def work(scene: Scene) -> None:
        scene.create()
        for size in (300, 500, 300, 500, 300, 500):
            scene.append(size, producer=1)
        scene.delete_records(1)
        scene.checkpoint()
        scene.delete_records(3)
        assert scene.retain() == 1
        scene.append(20, producer=2, transactional=True)
        scene.flush()
        scene.checkpoint()
        scene.end_transaction(2, commit=False)
        scene.pass_time(2000)
        for size in (300, 500, 300, 500):
            scene.append(size, producer=3)
        assert scene.retain() > 0
        scene.checkpoint()
        scene.delete_records(scene.log().log_end_offset)
        scene.checkpoint()
        scene.append(20)
        scene.pass_time(2000)

    assert CrashTest(replace(TINY, retention_bytes=2500)).run(work).recovered > 200


def test_retention_that_deletes_everything() -> None:
    """S4, S7: offsets continue, even if no record remains."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(5):
            scene.append(500, producer=1)
        scene.flush()
        scene.checkpoint()
        scene.clock.advance(100_000)
        assert scene.retain() > 0
        scene.checkpoint()
        scene.roll()
        scene.append(50, producer=1)
        scene.flush()
        scene.pass_time(2000)

    assert CrashTest(replace(TINY, retention_ms=50_000)).run(work).recovered > 80


def test_clean_stops_and_starts() -> None:
    """S7: a clean stop makes everything durable; after the next start that is void."""

    def work(scene: Scene) -> None:
        scene.create()
        scene.append(300, producer=1)
        scene.append(300, producer=2, transactional=True)
        scene.restart()
        scene.append(800, producer=1)
        scene.end_transaction(2, commit=False)
        scene.append(500)
        scene.restart()
        scene.roll()
        scene.restart()
        scene.append(100, producer=2, transactional=True)
        scene.delete_records(2)
        scene.stop()

    assert CrashTest(TINY).run(work).recovered > 150


def test_partitions_are_created_and_deleted() -> None:
    """S1: partitions are independent; a deleted one stays deleted, and can be created again."""
    first, second = TopicPartition("orders", 0), TopicPartition("bills", 3)

    def work(scene: Scene) -> None:
        scene.create(first)
        scene.append(300, partition=first)
        scene.create(second)
        scene.append(800, partition=second)
        scene.append(900, partition=second)
        scene.flush(second)
        scene.checkpoint()
        scene.append(900, partition=first)
        scene.delete(second)
        scene.flush(first)
        scene.pass_time(2000)
        scene.create(second)
        scene.append(10, partition=second)
        scene.flush(second)
        scene.delete(first)
        scene.restart()
        scene.create(first)
        scene.append(10, partition=first)

    assert CrashTest(TINY, directories=("/logs/a", "/logs/b")).run(work).recovered > 150


def test_compressed_and_preallocated() -> None:
    """S1: preallocated space in a file is not a record."""

    def work(scene: Scene) -> None:
        scene.create()
        scene.append(300, 300, compression=Compression.ZSTD)
        scene.append(500, compression=Compression.LZ4)
        scene.flush()
        scene.append(500)
        scene.append(700, compression=Compression.GZIP)
        scene.checkpoint()
        scene.append(700)
        scene.restart()
        scene.append(700)

    assert CrashTest(replace(TINY, preallocate=True)).run(work).recovered > 100


def test_records_truncated_by_recovery_do_not_reappear() -> None:
    """S7: a valid batch behind a torn one never follows batches appended in its place."""
    disk = CrashDisk()
    scene = Scene(disk)
    scene.create()
    for _ in range(4):
        scene.append(150)
    disk.make_durable()
    log = scene.log()
    path = f"{log.directory}/{0:020d}.log"
    size = log.size // 4
    disk.open(path).write_at(b"torn", size + 100)
    disk.make_durable()
    image = disk.image(CrashMode.DURABLE)
    scene = Scene(image)
    result = contents(scene.log())
    scene.histories[TP] = History(result, result)
    assert scene.log().log_end_offset == 1
    scene.append(150)
    for seed in range(200):
        with with_crash_point(f"seed {seed}"):
            check_logs(open_logs(image.image(CrashMode.TORN, Random(seed)), scene), scene)


COMPACTED = replace(
    TINY,
    segment_bytes=100_000,
    segment_index_bytes=1000,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
)


def compact_into(scene: Scene, segment_bytes: int) -> None:
    """Compacts, with new segments of that size at most."""
    scene.log().config = replace(COMPACTED, segment_bytes=segment_bytes)
    assert scene.compact()
    scene.log().config = COMPACTED


@pytest.mark.parametrize("segment_bytes", [700, pytest.param(2500, marks=pytest.mark.long)])
def test_compaction(segment_bytes: int) -> None:
    """S5, S7: a crash leaves all of the old segments or all of the new one that replaces them."""

    def work(scene: Scene) -> None:
        scene.create()
        keys = [b"a", b"b", b"c", b"d"]
        for n in range(12):
            scene.append(100, 30, keys=[keys[n % 4], keys[n % 3]], producer=n % 2)
            if n % 3 == 2:
                scene.flush_and_roll()
        scene.append(60, keys=[b"e"], producer=3, transactional=True)
        scene.append(60, keys=[b"a"], producer=4, transactional=True)
        scene.end_transaction(3, commit=False)
        scene.end_transaction(4, commit=True)
        scene.flush_and_roll()
        scene.append(10, keys=[b"z"])
        compact_into(scene, segment_bytes)
        for n in range(6):
            scene.append(100, keys=[keys[n % 4]])
        scene.checkpoint()
        scene.flush_and_roll()
        scene.append(10, keys=[b"y"])
        compact_into(scene, segment_bytes)
        scene.pass_time(2000)
        scene.append(10, keys=[b"x"])

    assert CrashTest(COMPACTED, nested_every=40).run(work).recovered > 300


def test_compaction_that_leaves_little() -> None:
    """S5, S7: segments of which nothing stays are replaced too, or all of them are there."""

    def work(scene: Scene) -> None:
        scene.create()
        for n in range(24):
            scene.append(150 + n, keys=[b"a"])
            if n % 3 == 1:
                scene.flush_and_roll()
        compact_into(scene, 2500)
        scene.append(10, keys=[b"a"])
        scene.flush_and_roll()
        compact_into(scene, 2500)

    assert CrashTest(COMPACTED).run(work).recovered > 100
