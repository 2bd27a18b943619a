"""Drivers that are killed with their JVM and all child processes, at every step (D3).

Each driver runs several pipelines, to SQLite, PostgreSQL, MariaDB and to a topic, and each of them
is at another step when the process is killed.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing import Broker
from tests.support.spark.environments import new_environment
from tests.support.spark.pipeline_driver import Driver, Order, killed
from tests.support.spark.pipeline_environment import Environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_a_second_process_takes_over_and_the_first_stops_with_one_clear_line(
    spark: "SparkSession", broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The first driver is held during a batch, on each database, and stores nothing of it."""
    environments = [
        new_environment(request, broker, tmp_path, "closed", "sqlite", batch=1000),
        new_environment(
            request, broker, tmp_path, "append", "postgresql", batch=1000, letters="topic"
        ),
        new_environment(request, broker, tmp_path, "update", "mariadb", batch=1000),
        new_environment(request, broker, tmp_path, "topic", "topic", batch=1000),
    ]
    for environment in environments:
        environment.produce(30)
        environment.end_windows()
    held = [Order(environment, "rows", "hold") for environment in environments]
    with Driver(held, tmp_path) as first:
        first.wait_for_all(f"{environment.name} is at rows" for environment in environments)
        for environment in environments:
            # On the same checkpoint, in which the first driver has planned its batch.
            environment.once(spark)
        first.go(len(environments))
        assert first.end() == 1
        lines = first.errors.splitlines()
    for environment in environments:
        environment.check()
    fenced = [line for line in lines if line.startswith("FencedError: ")]
    assert len(fenced) == len(environments), lines
    for environment in environments:
        assert any(environment.name in line and "taken over" in line for line in fenced), lines


HISTORIES = (
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
    broker: Broker, environments: Sequence[Environment], tmp_path: Path, seed: int
) -> None:
    """In the last run a worker is killed after it has staged its rows, and its task is repeated."""
    rng = random.Random(seed)
    for points in HISTORIES:
        for environment in environments:
            environment.produce(rng.randint(14, 22))
        orders = [Order(item, point) for item, point in zip(environments, points, strict=True)]
        killed(orders, tmp_path)
    for environment in environments:
        environment.produce(5)
        environment.end_windows()
    marker = tmp_path / "worker"
    with Driver(
        [Order(environment) for environment in environments], tmp_path, worker_dies=marker
    ) as last:
        assert last.end() == 0, last.errors
    assert marker.exists()
    for environment in environments:
        environment.check()


@pytest.fixture
def environments(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> Sequence[Environment]:
    return [
        new_environment(request, broker, tmp_path, "closed", "sqlite", batch=1000),
        new_environment(request, broker, tmp_path, "staged", "postgresql", batch=1000),
        new_environment(request, broker, tmp_path, "update", "mariadb", letters="topic"),
        new_environment(request, broker, tmp_path, "topic", "topic", batch=1000),
    ]
