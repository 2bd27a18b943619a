"""kill -9 of drivers: Python, the JVM and all that they have started, at every step (D3).

Each life of a driver runs several pipelines, on SQLite, PostgreSQL, MariaDB and to a topic, and
each of them is at a step of its own when the process dies.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing import Broker
from tests.support.spark.pipeline_driver import Driver, Order, killed
from tests.support.spark.pipeline_world import World
from tests.support.spark.worlds import new_world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_a_second_process_takes_over_and_the_first_stops_with_one_clear_line(
    spark: "SparkSession", broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The first is in the middle of a batch, on each database; it stores nothing of it."""
    worlds = [
        new_world(request, broker, tmp_path, "closed", "sqlite", batch=1000),
        new_world(request, broker, tmp_path, "append", "postgresql", batch=1000, letters="topic"),
        new_world(request, broker, tmp_path, "update", "mariadb", batch=1000),
        new_world(request, broker, tmp_path, "topic", "topic", batch=1000),
    ]
    for each in worlds:
        each.produce(30)
        each.end_windows()
    held = [Order(world, "rows", "hold") for world in worlds]
    with Driver(held, tmp_path) as first:
        first.wait_for_all(f"{world.name} is at rows" for world in worlds)
        for world in worlds:
            # On the same checkpoint, which the first has planned its batch in.
            world.once(spark)
        first.go(len(worlds))
        assert first.end() == 1
        lines = first.errors.splitlines()
    for world in worlds:
        world.check()
    fenced = [line for line in lines if line.startswith("FencedError: ")]
    assert len(fenced) == len(worlds), lines
    for world in worlds:
        assert any(world.name in line and "taken over" in line for line in fenced), lines


LIVES = (
    ("opened", "begun", "begun", "opened"),
    ("begun", "opened", "batch", "begun"),
    ("batch", "rows", "opened", "dead-letters"),
    ("rows", "batch", "dead-letters", "batch"),
    ("dead-letters", "committing", "rows", "rows"),
    ("stored", "stored", "stored", "stored"),
    ("skipped", "skipped", "skipped", "skipped"),
    ("committing", "dead-letters", "committing:2", "stored"),
)
"""Where the pipelines are when a driver is killed, life by life: those to SQLite, PostgreSQL,
MariaDB, and to a topic. On each database every step is the last of a life. `stored` lies between
the sink's commit and that of Spark; what was stored so is skipped in the next life."""


@pytest.mark.parametrize("seed", [1])
def test_drivers_killed_at_every_step_neither_lose_nor_double(
    broker: Broker, worlds: Sequence[World], tmp_path: Path, seed: int
) -> None:
    """In the last life a worker is killed when it has staged its rows, and its task runs again."""
    chance = random.Random(seed)
    for points in LIVES:
        for world in worlds:
            world.produce(chance.randint(14, 22))
        orders = [Order(each, point) for each, point in zip(worlds, points, strict=True)]
        killed(orders, tmp_path)
    for world in worlds:
        world.produce(5)
        world.end_windows()
    marker = tmp_path / "worker"
    with Driver([Order(world) for world in worlds], tmp_path, worker_dies=marker) as last:
        assert last.end() == 0, last.errors
    assert marker.exists()
    for world in worlds:
        world.check()


@pytest.fixture
def worlds(broker: Broker, request: pytest.FixtureRequest, tmp_path: Path) -> Sequence[World]:
    return [
        new_world(request, broker, tmp_path, "closed", "sqlite", batch=1000),
        new_world(request, broker, tmp_path, "staged", "postgresql", batch=1000),
        new_world(request, broker, tmp_path, "update", "mariadb", letters="topic"),
        new_world(request, broker, tmp_path, "topic", "topic", batch=1000),
    ]
