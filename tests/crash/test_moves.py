"""A crash at every write and every sync of a move between directories (S1, S7)."""

from dataclasses import replace
from itertools import count

import pytest

from penstock.storage.manager import log_move
from tests.crash.harness import SEEDS, CrashTest
from tests.crash.test_crash_points import COMPACTED, compact_into
from tests.support.storage.log_workloads import TINY, TP, Scene

pytestmark = pytest.mark.long

A, B = DIRECTORIES = ("/logs/a", "/logs/b")


def home(scene: Scene) -> str:
    return scene.log().directory.rpartition("/")[0]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a move of a few batches take several steps."""
    monkeypatch.setattr(log_move, "CHUNK_BYTES", 700)
    monkeypatch.setattr(log_move, "FINAL_BYTES", 200)


def test_a_move_and_a_move_back() -> None:
    """S7: at each moment the partition is in one directory, with all flushed records."""

    def work(scene: Scene) -> None:
        scene.create()
        for size in (300, 500, 10, 700):
            scene.append(size, producer=1)
        scene.flush()
        scene.append(100, producer=2, transactional=True)
        scene.checkpoint()
        assert scene.move(B, lambda: scene.append(400, producer=1))
        assert home(scene) == B
        scene.append(50, producer=1)
        scene.end_transaction(2, commit=False)
        scene.flush()
        scene.append(70)
        assert scene.move(A)
        assert home(scene) == A
        scene.append(10)
        scene.pass_time(2000)

    assert CrashTest(TINY, directories=DIRECTORIES, seeds=SEEDS or 1).run(work).recovered > 150


def test_appends_flushes_and_deletions_continue_during_a_move() -> None:
    """S4, S7: changes of the log during the copy are applied to the copy."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(6):
            scene.append(600, producer=1)
        scene.delete_records(1)
        scene.flush()
        scene.checkpoint()
        assert scene.move(
            B,
            lambda: scene.append(600),
            lambda: scene.delete_records(3),
            scene.retain,
            lambda: scene.append(600),
            scene.flush,
            lambda: scene.append(20),
        )
        assert scene.log().log_start_offset == 3
        scene.append(10)
        scene.flush()
        scene.checkpoint()

    config = replace(TINY, segment_bytes=1000)
    assert CrashTest(config, directories=DIRECTORIES, seeds=SEEDS or 1).run(work).recovered > 150


def test_a_log_that_is_truncated_under_way() -> None:
    """R4, S7: nothing that was truncated gets into the copy."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(5):
            scene.append(300)
        scene.flush()

        def cut() -> None:
            scene.truncate(2)
            scene.leader_epoch = 3
            scene.append(310)

        assert scene.move(B, lambda: None, cut)
        scene.append(10)
        scene.flush()

    assert CrashTest(TINY, directories=DIRECTORIES, seeds=SEEDS or 1).run(work).recovered > 80


def test_a_move_that_is_cancelled_and_one_of_a_deleted_partition() -> None:
    """S7: the current log is not touched, and a deleted one stays away."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(4):
            scene.append(300)
        scene.flush()
        assert not scene.move(B, lambda: scene.manager.cancel_move(TP))
        assert home(scene) == A
        scene.append(10)
        assert not scene.move(B, lambda: None, scene.delete)

    assert CrashTest(TINY, directories=DIRECTORIES, seeds=SEEDS or 1).run(work).recovered > 50


def test_a_compacted_log() -> None:
    """S5, S7: gaps left by compaction are not a loss in the copy either."""

    def work(scene: Scene) -> None:
        scene.create()
        for n in range(12):
            scene.append(100, 30, keys=[b"abcd"[n % 4 : n % 4 + 1], b"z"], producer=n % 2)
            if n % 3 == 2:
                scene.flush_and_roll()
        scene.append(10, keys=[b"y"])
        compact_into(scene, 2500)
        assert scene.move(B)
        scene.append(10, keys=[b"x"])
        scene.flush()

    assert CrashTest(COMPACTED, directories=DIRECTORIES, seeds=SEEDS or 1).run(work).recovered > 100


def test_an_interrupted_move_is_begun_again() -> None:
    """S7: after a stop in the middle the copy starts again, and the old copy is removed."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(5):
            scene.append(300)
        move = scene.manager.begin_move(TP, B)
        assert move is not None, "nothing to move"
        for _ in range(2):
            assert not scene.manager.advance_move(move)
            move.run()
        scene.restart()
        assert scene.manager.unfinished_moves() == [(TP, B)]
        scene.append(20)
        assert scene.move(B)
        assert home(scene) == B
        assert [name for name in scene.disk.names(B) if "future" in name] == []

    assert CrashTest(TINY, directories=DIRECTORIES, seeds=SEEDS or 1).run(work).recovered > 80


def test_appends_continue_at_every_step_of_the_swap() -> None:
    """S4, S7: appends, DeleteRecords and checkpoints between any two syncs of it."""

    def work(scene: Scene) -> None:
        scene.create()
        for _ in range(4):
            scene.append(300, producer=1)
        scene.flush()
        start = iter(range(1, 100))
        turn = [
            lambda: scene.append(120, producer=1),
            lambda: scene.delete_records(next(start)),
            lambda: scene.append(20),
            scene.checkpoint,
            lambda: scene.append(250),
        ]
        assert scene.move(B, *turn, *turn, *turn, *turn)
        assert home(scene) == B
        scene.flush()
        scene.append(10)

    assert CrashTest(TINY, directories=DIRECTORIES, seeds=SEEDS or 2).run(work).recovered > 80


def test_a_partition_that_is_deleted_at_each_step() -> None:
    """S7: no directory of the partition remains, whichever the swap has renamed."""
    for steps in count():
        too_late: list[int] = []

        def work(scene: Scene, steps: int = steps, too_late: list[int] = too_late) -> None:
            scene.create()
            for _ in range(3):
                scene.append(300)
            scene.flush()
            scene.move(B, *[lambda: scene.append(10)] * steps, scene.delete)
            if TP in {log.partition for log in scene.manager}:
                too_late.append(steps)
                scene.delete()
            assert scene.manager.get(TP) is None
            scene.create()
            assert scene.append(10).first_offset == 0

        CrashTest(TINY, directories=DIRECTORIES, seeds=1, reuse_every=20).run(work)
        if too_late:  # the move was over, and more steps would be none
            break
    assert steps > 4
