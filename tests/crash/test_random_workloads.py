"""Crashes at every operation of random workloads (S7)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.core.ids import TopicPartition
from penstock.storage.log_config import LogConfig
from tests.crash.harness import SEEDS, CrashTest
from tests.support.storage.log_model import implied
from tests.support.storage.log_workloads import TINY, TP, Scene

pytestmark = pytest.mark.long

OTHER = TopicPartition("bills", 1)
STEPS = 30


def append(scene: Scene) -> None:
    rng = scene.rng
    for _ in range(rng.randint(1, 4)):
        producer = rng.choice((None, None, 1, 2))
        current = implied(scene.histories[TP].appended).producers.get(producer or 0)
        is_open = current is not None and current.txn_first_offset is not None
        scene.append(
            *(rng.choice((5, 150, rng.randrange(500))) for _ in range(rng.randint(1, 2))),
            keys=[rng.choice((b"a", b"b", b"c")) for _ in range(2)],
            producer=producer,
            transactional=producer is not None and (is_open or rng.random() < 0.5),
        )


def end_transaction(scene: Scene) -> None:
    scene.end_transaction(scene.rng.choice((1, 2)), commit=scene.rng.random() < 0.5)


def new_leader(scene: Scene) -> None:
    scene.leader_epoch += 1


def truncate(scene: Scene) -> None:
    batches = scene.histories[TP].batches[-scene.rng.randint(1, 8) :]
    if batches:
        scene.truncate(batches[0].base_offset)


def truncate_fully(scene: Scene) -> None:
    scene.truncate_fully(max(scene.log().log_end_offset + scene.rng.randint(-5, 20), 0))


def flush(scene: Scene) -> None:
    if scene.log().recovery_point < scene.log().log_end_offset and scene.rng.random() < 0.5:
        scene.flush_while(lambda: append(scene), lambda: append(scene))
    else:
        scene.flush()


def roll(scene: Scene) -> None:
    if scene.config.compact:
        scene.flush_and_roll()
    else:
        scene.roll()


def delete_records(scene: Scene) -> None:
    log = scene.log()
    scene.delete_records(scene.rng.randint(log.log_start_offset, log.high_watermark))


def come_and_go(scene: Scene) -> None:
    history = scene.histories.get(OTHER)
    if history is None or not history.present:
        scene.create(OTHER)
        scene.append(200, partition=OTHER)
    elif scene.rng.random() < 0.5:
        scene.append(700, partition=OTHER)
        scene.flush(OTHER)
    else:
        scene.delete(OTHER)


WEIGHTS: dict[Callable[[Scene], object], int] = {
    append: 10,
    end_transaction: 3,
    new_leader: 2,
    truncate: 2,
    truncate_fully: 1,
    flush: 4,
    Scene.checkpoint: 3,
    roll: 2,
    delete_records: 1,
    Scene.retain: 2,
    Scene.restart: 1,
    Scene.compact: 2,
    come_and_go: 1,
    lambda scene: scene.pass_time(800): 1,
}


def work(scene: Scene) -> None:
    scene.create()
    for step in scene.rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        step(scene)


CONFIGS = (
    replace(TINY, retention_bytes=4000),
    replace(TINY, index_interval_bytes=0, segment_index_bytes=36, retention_bytes=2500),
    replace(
        TINY,
        segment_bytes=100_000,
        segment_index_bytes=2000,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
    ),
)


@pytest.mark.parametrize("seed", range(SEEDS or 9))
def test_a_random_workload(seed: int) -> None:
    config: LogConfig = CONFIGS[seed % len(CONFIGS)]
    test = CrashTest(config, seeds=1, reuse_every=10, nested_every=100, workload_seed=seed)
    assert test.run(work).recovered > 100
