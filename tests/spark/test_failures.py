"""Pipelines that crash at every step, lose checkpoints and are taken over: each record once (D3).

The crashes of these tests are errors that end the query; test_failures_kills.py kills processes.
Every history is generated from a seed, which is a part of the test's name: the same name repeats
the same history.
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
from tests.support.spark.environments import DATABASES, KilledError, die, new_environment
from tests.support.spark.pipeline_environment import Environment, Kind, Point, commits_seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


class History(NamedTuple):
    """Returns the steps at which consecutive runs of a driver end."""

    kind: Kind
    steps: tuple[str, ...]


# On each database every step ends a run once. Only stored batches can be skipped.
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
    ("history", "database"), CASES, ids=[f"{item.kind}-{where}" for item, where in CASES]
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
    rng = random.Random(f"{history.kind} {database} {seed}")
    letters: Literal["table", "topic"] = rng.choice(["table", "topic"])
    environment = new_environment(
        request, broker, tmp_path, history.kind, database, letters=letters
    )
    for step in history.steps:
        environment.produce(rng.randint(14, 22))
        if environment.stateful:
            if rng.random() < 0.3:
                environment.lose_last_commit()
        elif step != "skipped" and rng.random() < 0.5:
            environment.lose_checkpoint()
        # The second batch of a run uses state that the first has left in memory.
        times = 1 if step in ("opened", "begun", "skipped") else rng.randint(1, 2)
        environment.batch = 1000 if times == 1 else 12
        crash(environment, spark, f"{step}:{times}")
    environment.batch = 1000
    environment.end_windows()
    environment.once(spark)
    environment.check()


def crash(environment: Environment, spark: "SparkSession", where: str) -> None:
    point = Point(where, die)
    with commits_seen(), pytest.raises((KilledError, PipelineError), match="at its point"):
        environment.once(spark, point)
    assert point.reached


def test_a_second_driver_in_the_middle_of_a_batch_of_the_first(
    spark: "SparkSession", broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The rival has its own checkpoint, as on another machine, so only the sink can detect it.

    test_failures_kills.py tests it with processes, on every database.
    """
    environment = new_environment(
        request, broker, tmp_path, "append", "sqlite", letters="topic", batch=1000
    )
    environment.produce(20)
    rival = Point("rows", lambda: environment.once(spark, checkpoint=str(tmp_path / "rival")))
    with pytest.raises(FencedError, match="taken over"):
        environment.once(spark, rival)
    assert rival.reached
    environment.check()
    environment.produce(10)
    try:
        environment.once(spark)
    except ProgressError as error:
        # The first driver's checkpoint has another batch than the rival has stored.
        assert "remove it" in str(error)  # noqa: PT017  (both may happen)
        environment.lose_checkpoint()
        environment.once(spark)
    environment.check()


@pytest.mark.parametrize(
    ("kind", "database"), [*(("append", item) for item in DATABASES), ("topic", "topic")]
)
def test_a_lost_checkpoint_costs_nothing(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: Literal["append", "topic"],
    database: str,
) -> None:
    """The sink knows where to resume, also after a batch that Spark has not committed.

    Batch numbers start at 0 again and decide nothing.
    """
    environment = new_environment(request, broker, tmp_path, kind, database, batch=1000)
    for records in (20, 10):
        environment.produce(records)
        crash(environment, spark, "stored")
        environment.lose_checkpoint()
    environment.produce(10)
    result = environment.once(spark)
    assert result.queries[0].skipped == 0
    assert result.rows == sum(item >= 30 for item in environment.good)
    environment.check()


@pytest.mark.parametrize("database", DATABASES)
def test_state_that_is_lost_is_refused_and_rebuilt(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
) -> None:
    """A rebuild that crashes is finished by the next one."""
    environment = new_environment(request, broker, tmp_path, "update", database, batch=1000)
    environment.produce(30)
    environment.once(spark)
    before = environment.stored_rows()
    environment.lose_checkpoint()
    environment.produce(10)
    with pytest.raises(CheckpointLostError, match="penstock pipeline rebuild"):
        environment.once(spark)
    assert environment.stored_rows() == before
    with pytest.raises(KilledError):
        rebuild(environment.spec, spark, at=Point("cleared", die))
    assert environment.stored_rows() == []
    rebuild(environment.spec, spark)
    environment.once(spark)
    environment.check()


@pytest.mark.parametrize("database", DATABASES)
def test_a_recreated_topic_is_refused_with_and_without_a_checkpoint(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
) -> None:
    """The offsets of the new topic belong to other records."""
    environment = new_environment(request, broker, tmp_path, "append", database, batch=1000)
    environment.produce(10)
    environment.once(spark)
    before = environment.stored_rows()
    broker.delete_topic(environment.topic)
    broker.create_topic(environment.topic, 2)
    environment.produce(20)
    for _ in range(2):
        with pytest.raises(DataLossError, match="deleted and created again"):
            environment.once(spark)
        environment.lose_checkpoint()
    assert environment.stored_rows() == before
