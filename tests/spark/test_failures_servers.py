"""Brokers, databases and Python workers that are killed while a pipeline runs (D3).

SQLite has no server: it is killed with the driver, in test_failures_kills.py.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from sqlalchemy import inspect, make_url, text

from penstock.spark.errors import PipelineError
from penstock.testing import Broker
from tests.support.spark.continuous import Continuous, Meeting
from tests.support.spark.databases import (
    DatabaseServer,
    MariaDbServer,
    PostgreSqlServer,
    engine_for,
)
from tests.support.spark.environments import DATABASES, SERVERS, new_environment
from tests.support.spark.pipeline_environment import Environment, Point, commits_seen
from tests.support.spark.worker_faults import dying_after_staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.long

STATEFUL_OR_TOPIC = [*(("update", item) for item in DATABASES), ("topic", "topic")]


@pytest.mark.parametrize(("kind", "database"), STATEFUL_OR_TOPIC)
def test_a_broker_that_is_killed_and_started_again_is_waited_for(
    spark: "SparkSession",
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: Literal["update", "topic"],
    database: str,
) -> None:
    with Broker() as broker:
        environment = new_environment(request, broker, tmp_path, kind, database, letters="topic")
        environment.produce(20)
        meeting = Meeting()
        with Continuous(environment, spark, Point("batch:2", meeting.hold)) as running:
            meeting.wait()
            broker.kill()
            # The tasks of the batch cannot connect.
            meeting.go()
            broker.start()
            environment.produce(20)
            running.until_read(40)
        assert running.error is None
        environment.check()


@pytest.mark.parametrize("database", DATABASES)
def test_a_broker_that_stays_down_stops_the_pipeline_which_resumes_later(
    spark: "SparkSession", request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    with Broker() as broker:
        environment = new_environment(
            request, broker, tmp_path, "append", database, letters="topic"
        )
        # Instead of a minute.
        environment.kafka = {"default.api.timeout.ms": "1000", "request.timeout.ms": "1000"}
        environment.produce(20)
        with Continuous(environment, spark) as running:
            running.until_read(20)
            broker.kill()
            with pytest.raises(PipelineError, match=broker.bootstrap_servers):
                running.until_read(21)
        broker.start()
        environment.produce(10)
        environment.once(spark)
        environment.check()


@pytest.fixture(scope="module")
def durable_postgresql() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def durable_mariadb() -> Iterator[MariaDbServer]:
    with MariaDbServer(durable=True) as server:
        yield server


@pytest.mark.parametrize("kind", ["staged", "update"])
@pytest.mark.parametrize("database", SERVERS)
def test_a_database_that_is_killed_in_the_middle_of_a_transaction_is_waited_for(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: Literal["staged", "update"],
    database: str,
) -> None:
    """The server is killed after the rows are written, during their commit."""
    environment = new_environment(request, broker, tmp_path, kind, f"durable_{database}")
    server: DatabaseServer = request.getfixturevalue(f"durable_{database}")
    environment.produce(20)
    busy, idle = Meeting(), Meeting()
    # Connections that are closed before they are used are detected, too.
    points = Point("batch:2", idle.hold), Point("committing", busy.hold)

    def at(step: str) -> None:
        for point in points:
            point(step)

    with commits_seen(), ThreadPoolExecutor() as pool:
        running = pool.submit(environment.once, spark, at)
        for meeting in (busy, idle):
            # In this thread, because the kernel ends a server with the thread that started it.
            meeting.wait()
            server.kill()
            server.start()
            meeting.go()
        running.result()
    environment.check()


@pytest.mark.parametrize(("kind", "database"), STATEFUL_OR_TOPIC)
def test_a_worker_killed_during_a_task_stores_nothing(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: Literal["update", "topic"],
    database: str,
) -> None:
    """Local Spark does not retry a task: the batch fails, and the next run repeats it."""
    environment = new_environment(request, broker, tmp_path, kind, database)
    environment.worker_dies = str(tmp_path / "worker")
    environment.produce(20)
    with pytest.raises(PipelineError, match="Python worker exited unexpectedly"):
        environment.once(spark)
    assert environment.stored_rows() == []
    environment.once(spark)
    environment.check()


@pytest.mark.parametrize("database", SERVERS)
def test_rows_staged_by_a_killed_worker_are_not_stored(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
) -> None:
    """test_failures_kills.py tests it with a task that is retried."""
    environment = new_environment(request, broker, tmp_path, "staged", database)
    environment.produce(20)
    with (
        dying_after_staging(str(tmp_path / "worker")),
        pytest.raises(PipelineError, match="Python worker exited unexpectedly"),
    ):
        environment.once(spark)
    assert environment.stored_rows() == []
    assert staged_rows(environment) > 0
    environment.once(spark)
    environment.check()
    assert staged_rows(environment) == 0


def staged_rows(environment: Environment) -> int:
    with engine_for(make_url(environment.database)) as engine:
        names = [name for name in inspect(engine).get_table_names() if "penstock_stage" in name]
        with engine.connect() as connection:
            return sum(
                int(connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one())
                for name in names
            )
