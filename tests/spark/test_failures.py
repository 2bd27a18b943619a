"""Pipelines that crash at every step, lose checkpoints and are taken over: each record once (D3).

The crashes of these tests are errors that end the query where it is; test_failures_kills.py kills
processes. Every history is made from a seed, which is a part of the test's name: the same name
plays the same history again.
"""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pytest

from penstock.spark.errors import (
    CheckpointLostError,
    DataLossError,
    FencedError,
    PipelineError,
    ProgressError,
)
from penstock.spark.run.rebuild import rebuild
from penstock.testing import Broker
from tests.support.spark.pipeline_world import Kind, Point, World, commits_seen
from tests.support.spark.worlds import DATABASES, KilledError, die, new_world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


class History(NamedTuple):
    """The steps at which the lives of a driver end, one after the other."""

    kind: Kind
    steps: tuple[str, ...]


# On each database every step is the last of a life once. Only what was stored can be skipped.
CASES = [
    (History("append", ("opened", "begun", "batch", "dead-letters")), "sqlite"),
    (History("update", ("rows", "committing", "stored", "skipped")), "sqlite"),
    (History("upsert", ("opened", "begun", "rows", "dead-letters")), "postgresql"),
    (History("closed", ("batch", "committing", "stored", "skipped")), "postgresql"),
    (History("append", ("opened", "begun", "rows", "committing")), "mariadb"),
    (History("update", ("batch", "dead-letters", "stored", "skipped")), "mariadb"),
    (History("topic", ("dead-letters", "stored", "skipped")), "topic"),
]


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(
    ("history", "database"), CASES, ids=[f"{each.kind}-{where}" for each, where in CASES]
)
def test_a_history_of_crashes_neither_loses_nor_doubles(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    history: History,
    database: str,
    seed: int,
) -> None:
    chance = random.Random(f"{history.kind} {database} {seed}")
    letters: Literal["table", "topic"] = chance.choice(["table", "topic"])
    world = new_world(request, broker, tmp_path, history.kind, database, letters=letters)
    for step in history.steps:
        world.produce(chance.randint(14, 22))
        if world.stateful:
            if chance.random() < 0.3:
                world.lose_last_commit()
        elif step != "skipped" and chance.random() < 0.5:
            world.lose_checkpoint()
        # The second batch of a life is written on what the first has left in memory.
        times = 1 if step in ("opened", "begun", "skipped") else chance.randint(1, 2)
        world.batch = 1000 if times == 1 else 12
        crash(world, spark, f"{step}:{times}")
    world.batch = 1000
    world.end_windows()
    world.once(spark)
    world.check()


def crash(world: World, spark: "SparkSession", where: str) -> None:
    point = Point(where, die)
    with commits_seen(), pytest.raises((KilledError, PipelineError), match="at its point"):
        world.once(spark, point)
    assert point.reached


def test_a_second_driver_in_the_middle_of_a_batch_of_the_first(
    spark: "SparkSession", broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It has a checkpoint of its own, as on another machine, so that only the sink can tell. As
    processes, and on every database: test_failures_kills.py."""
    world = new_world(request, broker, tmp_path, "append", "sqlite", letters="topic", batch=1000)
    world.produce(20)
    rival = Point("rows", lambda: world.once(spark, checkpoint=str(tmp_path / "rival")))
    with pytest.raises(FencedError, match="taken over"):
        world.once(spark, rival)
    assert rival.reached
    world.check()
    world.produce(10)
    try:
        world.once(spark)
    except ProgressError as error:
        # The checkpoint of the first has another batch than the rival has stored.
        assert "remove it" in str(error)  # noqa: PT017  (both may happen)
        world.lose_checkpoint()
        world.once(spark)
    world.check()


@pytest.mark.parametrize(
    ("kind", "database"), [*(("append", each) for each in DATABASES), ("topic", "topic")]
)
def test_a_lost_checkpoint_costs_nothing(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: Literal["append", "topic"],
    database: str,
) -> None:
    """The sink knows where to go on, also of a batch that Spark has never called done. Batch
    numbers start at 0 again, and say nothing."""
    world = new_world(request, broker, tmp_path, kind, database, batch=1000)
    for records in (20, 10):
        world.produce(records)
        crash(world, spark, "stored")
        world.lose_checkpoint()
    world.produce(10)
    result = world.once(spark)
    assert result.queries[0].skipped == 0
    assert result.rows == sum(each >= 30 for each in world.good)
    world.check()


@pytest.mark.parametrize("database", DATABASES)
def test_state_that_is_lost_is_refused_and_rebuilt(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
) -> None:
    """A rebuild that crashes half-way is finished by the next one."""
    world = new_world(request, broker, tmp_path, "update", database, batch=1000)
    world.produce(30)
    world.once(spark)
    before = world.found()
    world.lose_checkpoint()
    world.produce(10)
    with pytest.raises(CheckpointLostError, match="penstock pipeline rebuild"):
        world.once(spark)
    assert world.found() == before
    with pytest.raises(KilledError):
        rebuild(world.spec, spark, at=Point("cleared", die))
    assert world.found() == []
    rebuild(world.spec, spark)
    world.once(spark)
    world.check()


@pytest.mark.parametrize("database", DATABASES)
def test_a_topic_that_was_made_again_is_refused_with_and_without_a_checkpoint(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
) -> None:
    """Its offsets are those of other records."""
    world = new_world(request, broker, tmp_path, "append", database, batch=1000)
    world.produce(10)
    world.once(spark)
    before = world.found()
    broker.delete_topic(world.topic)
    broker.create_topic(world.topic, 2)
    world.produce(20)
    for _ in range(2):
        with pytest.raises(DataLossError, match="deleted and created again"):
            world.once(spark)
        world.lose_checkpoint()
    assert world.found() == before
