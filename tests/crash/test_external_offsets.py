"""Consumers that die at every step of saving results with offsets, and databases that die (C6).

In the end each record is in the database once, in the order of its partition.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from sqlalchemy import URL, select

from penstock.client.external_offsets.store import OffsetStore, begin
from tests.support.broker.process import PenstockBroker
from tests.support.client.external_offsets_worker import RESULTS, Task
from tests.support.spark.databases import (
    DatabaseServer,
    MariaDbServer,
    PostgreSqlServer,
    engine_for,
    sqlite_url,
)
from tests.support.spark.forked_workers import Workers

pytestmark = pytest.mark.long


ENDS = {"orders": [120, 110], "many": [1500, 1500]}
"""How many records each partition has."""

KILLED = -9

FIRST_POINTS = [
    "before create_table",
    "after create_table",
    "after read",
    "before add",
    "after add",
]
POINTS = [
    "after poll",
    "after insert",
    "before save",
    "after save",
    "committing",
    "before commit",
    "after commit",
    "after block",
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with PenstockBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
        for topic, ends in ENDS.items():
            fill(broker.bootstrap, topic, ends)
        yield broker


def fill(bootstrap: str, topic: str, ends: Sequence[int]) -> None:
    new = NewTopic(topic, num_partitions=len(ends), replication_factor=1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([new]).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, end in enumerate(ends):
        for number in range(end):
            producer.produce(topic, f"{partition}:{number}", partition=partition)
    assert producer.flush(20) == 0


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, DatabaseServer]]:
    with PostgreSqlServer(durable=True) as postgresql, MariaDbServer(durable=True) as mariadb:
        yield {"postgresql": postgresql, "mariadb": mariadb}


@pytest.fixture(scope="module")
def workers(
    tmp_path_factory: pytest.TempPathFactory,
    broker: PenstockBroker,
    servers: dict[str, DatabaseServer],
) -> Iterator[Workers[Task]]:
    directory = tmp_path_factory.mktemp("workers")
    with Workers[Task](
        "tests.support.client.external_offsets_worker", directory / "workers.log"
    ) as workers:
        for url in [sqlite_url(directory), *(server.fresh() for server in servers.values())]:
            task = task_for(broker, url)
            task.records_per_poll = 50
            workers.rehearse(task)
        yield workers


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    servers: dict[str, DatabaseServer] = request.getfixturevalue("servers")
    return servers[request.param].fresh()


def task_for(broker: PenstockBroker, url: URL, topic: str = "orders") -> Task:
    with engine_for(url) as engine:
        RESULTS.create(engine)
    return Task(broker.bootstrap, url.render_as_string(hide_password=False), topic, ENDS[topic])


def check(url: URL, where: str) -> int:
    """Checks that results and offsets agree: each record once, in order; returns how many."""
    results: dict[int, list[int]] = {0: [], 1: []}
    store = OffsetStore()
    with engine_for(url) as engine, engine.connect() as connection:
        # Results and offsets in one snapshot: consumers may be running.
        if engine.dialect.name != "sqlite":
            connection.execution_options(isolation_level="REPEATABLE READ")
        begin(connection)
        for row in connection.execute(select(RESULTS).order_by(RESULTS.c.id)):
            assert row.value == f"{row.part}:{row.position}"
            results[row.part].append(row.position)
        stored = store.read(connection, "g") if store.exists(connection) else {}
    ends = {item.partition: offset.position.offset for item, offset in stored.items()}
    for partition, result in results.items():
        end = ends.get(partition, 0)
        assert result == list(range(end)), f"{where}: partition {partition} up to {end}: {result}"
    return sum(ends.values())


def test_a_consumer_killed_at_every_step(
    broker: PenstockBroker, workers: Workers[Task], url: URL
) -> None:
    """C6: no loss, no doubles."""
    task = task_for(broker, url)
    points = [(point, 1) for point in FIRST_POINTS] + [
        (point, occurrence) for occurrence in (1, 3) for point in POINTS
    ]
    for task.point, task.occurrence in points:
        where = f"killed {task.point}, time {task.occurrence}"
        assert workers.run(task) == KILLED, f"not {where}: {workers.stderr_text()}"
        check(url, where)
    assert 0 < check(url, "at last") < sum(task.ends)
    task.point, task.records_per_poll = "", 50
    assert workers.run(task) == 0, workers.stderr_text()
    assert check(url, "at the end") == sum(task.ends)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_a_database_killed_at_work(
    broker: PenstockBroker,
    workers: Workers[Task],
    servers: dict[str, DatabaseServer],
    kind: str,
    point: str,
    tmp_path: Path,
) -> None:
    """C6: the consumer survives and continues from what the database has recovered."""
    server = servers[kind]
    url = server.fresh()
    task = task_for(broker, url)
    task.point, task.occurrence, task.records_per_poll = point, 4, 40
    worker = hold_at_point(workers, task, tmp_path / "hold")
    server.kill()
    server.start()
    assert 0 <= check(url, f"after a kill {point}") < sum(task.ends)
    (tmp_path / "hold").unlink()
    assert workers.wait(worker) == 0, workers.stderr_text()
    assert check(url, "at the end") == sum(task.ends)


def hold_at_point(workers: Workers[Task], task: Task, hold: Path) -> int:
    """Starts a consumer and waits until it holds at its point."""
    task.hold = str(hold)
    worker = workers.start(task)
    while not hold.exists():
        assert Path(f"/proc/{worker}").exists(), workers.stderr_text()
        time.sleep(0.005)
    return worker


def wait_for_more(url: URL, than: int) -> None:
    """Waits until more records have been saved."""
    deadline = time.monotonic() + 30
    while check(url, "at work") <= than:
        assert time.monotonic() < deadline, "no consumer makes progress"
        time.sleep(0.02)


def test_consumers_killed_in_a_rebalance(
    broker: PenstockBroker, workers: Workers[Task], url: URL
) -> None:
    """C6: partitions are reassigned, and their owner dies during the rebalance."""
    task = task_for(broker, url, "many")
    task.group, task.records_per_poll = True, 1
    task.point = "assigned"
    assert workers.run(task) == KILLED, workers.stderr_text()
    task.point = "revoked"
    first = workers.start(task)
    wait_for_more(url, 0)
    task.point, task.records_per_poll = "", 50
    second = workers.start(task)
    assert workers.wait(first) == KILLED, workers.stderr_text()
    assert workers.wait(second) == 0, workers.stderr_text()
    assert check(url, "at the end") == sum(task.ends)


def test_a_consumer_that_was_presumed_dead(
    broker: PenstockBroker, workers: Workers[Task], url: URL, tmp_path: Path
) -> None:
    """C6: it returns with records that another consumer has saved since."""
    task = task_for(broker, url)
    task.group, task.point, task.occurrence = True, "after poll", 5
    zombie = hold_at_point(workers, task, tmp_path / "hold")
    os.kill(zombie, signal.SIGSTOP)
    (tmp_path / "hold").unlink()
    assert 0 < check(url, "the first owner") < sum(task.ends)
    task.point = ""
    assert workers.run(task) == 0, workers.stderr_text()
    os.kill(zombie, signal.SIGCONT)
    assert workers.wait(zombie) == 0, workers.stderr_text()
    assert f"{zombie}: offsets were moved" in workers.stderr_text()
    assert check(url, "at the end") == sum(task.ends)
