"""Brokers, databases and Python workers that are killed under a pipeline that runs (D3).

SQLite has no server: it is killed with the driver, in test_failures_kills.py.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal

import pytest
from sqlalchemy import inspect, make_url, text

from penstock.spark.errors import PipelineError
from penstock.spark.run.query import StepHook
from penstock.spark.run.run import run
from penstock.spark.watch.run_listener import RunListener
from penstock.testing import Broker
from tests.support.spark.databases import (
    DatabaseServer,
    MariaDbServer,
    PostgreSqlServer,
    engine_for,
)
from tests.support.spark.pipeline_world import Point, World, commits_seen
from tests.support.spark.worker_faults import dying_after_staging
from tests.support.spark.worlds import DATABASES, SERVERS, new_world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.progress import Batch
    from penstock.spark.sinks.port import WriteResult

pytestmark = pytest.mark.long

STATEFUL_OR_TOPIC = [*(("update", each) for each in DATABASES), ("topic", "topic")]


class Continuous(RunListener):
    """A pipeline that runs in a thread until the end of the block."""

    def __init__(
        self, world: World, spark: "SparkSession", at: StepHook = lambda step: None
    ) -> None:
        self._stop = Event()
        self._news = Event()
        self.error: Exception | None = None
        self.end: int = 0

        def work() -> None:
            try:
                run(world.spec, spark=spark, listeners=[self], stop=self._stop, at=at)
            except Exception as error:  # noqa: BLE001  (the test looks at it)
                self.error = error
            finally:
                self._news.set()

        self._thread = Thread(target=work)

    def stored(self, query: str, batch: "Batch", applied: "WriteResult") -> None:
        self.end = sum(batch.end["events"].offsets.values())
        self._news.set()

    def __enter__(self) -> "Continuous":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def until_read(self, records: int) -> None:
        while self.end < records:
            assert self._news.wait(120)
            self._news.clear()
            if self.error is not None:
                raise self.error


@pytest.mark.parametrize(("kind", "database"), STATEFUL_OR_TOPIC)
def test_a_broker_that_is_killed_and_started_again_is_waited_for(
    spark: "SparkSession",
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: Literal["update", "topic"],
    database: str,
) -> None:
    with Broker() as broker:
        world = new_world(request, broker, tmp_path, kind, database, letters="topic")
        world.produce(20)
        meeting = Meeting()
        with Continuous(world, spark, Point("batch:2", meeting.hold)) as running:
            meeting.wait()
            broker.kill()
            # The tasks of the batch find nobody there.
            meeting.go()
            broker.start()
            world.produce(20)
            running.until_read(40)
        assert running.error is None
        world.check()


@pytest.mark.parametrize("database", DATABASES)
def test_a_broker_that_stays_away_stops_the_pipeline_which_goes_on_later(
    spark: "SparkSession", request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    with Broker() as broker:
        world = new_world(request, broker, tmp_path, "append", database, letters="topic")
        # Instead of a minute.
        world.kafka = {"default.api.timeout.ms": "1000", "request.timeout.ms": "1000"}
        world.produce(20)
        with Continuous(world, spark) as running:
            running.until_read(20)
            broker.kill()
            with pytest.raises(PipelineError, match=broker.bootstrap_servers):
                running.until_read(21)
        broker.start()
        world.produce(10)
        world.once(spark)
        world.check()


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
    """Rows are written, and their commit is on its way when the server dies."""
    world = new_world(request, broker, tmp_path, kind, f"durable_{database}")
    server: DatabaseServer = request.getfixturevalue(f"durable_{database}")
    world.produce(20)
    busy, idle = Meeting(), Meeting()
    # Connections that are dead before they are used are noticed, too.
    points = Point("batch:2", idle.hold), Point("committing", busy.hold)

    def at(step: str) -> None:
        for point in points:
            point(step)

    with commits_seen(), ThreadPoolExecutor() as pool:
        running = pool.submit(world.once, spark, at)
        for meeting in (busy, idle):
            # In this thread: the kernel ends a server with the thread that started it.
            meeting.wait()
            server.kill()
            server.start()
            meeting.go()
        running.result()
    world.check()


class Meeting:
    """One thread waits at a point for another."""

    def __init__(self) -> None:
        self._there = Event()
        self._go = Event()

    def hold(self) -> None:
        self._there.set()
        assert self._go.wait(120)

    def wait(self) -> None:
        assert self._there.wait(120)

    def go(self) -> None:
        self._go.set()


@pytest.mark.parametrize(("kind", "database"), STATEFUL_OR_TOPIC)
def test_a_worker_that_is_killed_in_the_middle_of_a_task_stores_nothing(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: Literal["update", "topic"],
    database: str,
) -> None:
    """Spark on one machine does not try a task again: the batch fails, and the next run has it."""
    world = new_world(request, broker, tmp_path, kind, database)
    world.worker_dies = str(tmp_path / "worker")
    world.produce(20)
    with pytest.raises(PipelineError, match="Python worker exited unexpectedly"):
        world.once(spark)
    assert world.found() == []
    world.once(spark)
    world.check()


@pytest.mark.parametrize("database", SERVERS)
def test_what_a_killed_worker_has_staged_counts_for_nothing(
    spark: "SparkSession",
    broker: Broker,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
) -> None:
    """With a task that is tried again: test_failures_kills.py."""
    world = new_world(request, broker, tmp_path, "staged", database)
    world.produce(20)
    with (
        dying_after_staging(str(tmp_path / "worker")),
        pytest.raises(PipelineError, match="Python worker exited unexpectedly"),
    ):
        world.once(spark)
    assert world.found() == []
    assert staged_rows(world) > 0
    world.once(spark)
    world.check()
    assert staged_rows(world) == 0


def staged_rows(world: World) -> int:
    with engine_for(make_url(world.database)) as engine:
        names = [name for name in inspect(engine).get_table_names() if "penstock_stage" in name]
        with engine.connect() as connection:
            return sum(
                int(connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one())
                for name in names
            )
