"""Writers that are killed at every step of a batch, fenced writers, and killed databases (D3).

In all cases each record up to the stored offset is stored once, as a result or as a dead letter.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, text

from tests.support.spark.database_worker import FENCED, Task
from tests.support.spark.databases import (
    DatabaseServer,
    MariaDbServer,
    PostgreSqlServer,
    engine_for,
    sqlite_url,
)
from tests.support.spark.forked_workers import Workers

pytestmark = pytest.mark.long


KILLED = -9
STEPS = 32
"""More steps than opening a sink and writing a batch have."""

FIRST_STEPS = (1, 2, 4, 6, 9, 13, 17, 21)
"""When the tables are created, and the first batch is written."""


@pytest.fixture(scope="module")
def servers(postgresql: PostgreSqlServer, mariadb: MariaDbServer) -> dict[str, DatabaseServer]:
    return {"postgresql": postgresql, "mariadb": mariadb}


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def durable(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server whose commits survive a kill."""
    kind = PostgreSqlServer if request.param == "postgresql" else MariaDbServer
    with kind(durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def workers(
    tmp_path_factory: pytest.TempPathFactory, servers: dict[str, DatabaseServer]
) -> Iterator[Workers[Task]]:
    directory = tmp_path_factory.mktemp("workers")
    with Workers[Task]("tests.support.spark.database_worker", directory / "workers.log") as workers:
        for url in [sqlite_url(directory), *(server.fresh() for server in servers.values())]:
            workers.rehearse(task_for(url, 20))
        yield workers


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], URL]:
    """Returns a function that creates new databases of each kind."""
    if request.param == "sqlite":

        def sqlite_database() -> URL:
            directory = tmp_path / str(len(list(tmp_path.iterdir())))
            directory.mkdir()
            return sqlite_url(directory)

        return sqlite_database
    servers: dict[str, DatabaseServer] = request.getfixturevalue("servers")
    return servers[request.param].fresh


def task_for(url: URL, end: int) -> Task:
    return Task(url.render_as_string(hide_password=False), end)


def check(url: URL, where: str) -> int:
    """Asserts that each record up to the stored offset is stored once; returns the offset."""
    with engine_for(url) as engine, engine.connect() as connection:

        def numbers(query: str) -> list[int]:
            return [int(row[0]) for row in connection.execute(text(query))]

        (end,) = numbers("SELECT next_offset FROM penstock_offset")
        results = numbers("SELECT n FROM results ORDER BY n") if end else []
        column = "`offset`" if engine.dialect.name == "mysql" else '"offset"'
        letters = numbers(f"SELECT {column} FROM letters ORDER BY 1")
    assert results == [n for n in range(end) if n % 5], where
    assert letters == [n for n in range(end) if n % 5 == 0], where
    return end


def test_a_writer_killed_at_every_step(workers: Workers[Task], fresh: Callable[[], URL]) -> None:
    url = fresh()
    task = task_for(url, 30)
    assert workers.run(task) == 0, workers.stderr_text()
    task.end = 100_000
    for task.kill_at in range(1, STEPS + 1):
        where = f"killed at step {task.kill_at}"
        assert workers.run(task) == KILLED, f"not {where}: {workers.stderr_text()}"
        end = check(url, where)
    # Later writers have reached a second batch.
    assert end >= 30 + 2 * 10
    task.kill_at, task.end, task.size = 0, end + 20, 20
    assert workers.run(task) == 0, workers.stderr_text()
    assert check(url, "at the end") == task.end


def test_a_writer_killed_in_its_first_run(workers: Workers[Task], fresh: Callable[[], URL]) -> None:
    """Also while it creates the tables."""
    for step in FIRST_STEPS:
        url = fresh()
        task = task_for(url, 20)
        task.kill_at = step
        assert workers.run(task) == KILLED, workers.stderr_text()
        task.kill_at = 0
        assert workers.run(task) == 0, workers.stderr_text()
        assert check(url, f"killed at step {step} of the first run") == 20


def hold(workers: Workers[Task], task: Task, point: str, file: Path) -> int:
    """Starts a writer and waits until it is held at a step."""
    task.hold_at, task.hold = point, str(file)
    worker = workers.start(task)
    while not file.exists():
        assert Path(f"/proc/{worker}").exists(), workers.stderr_text()
        time.sleep(0.005)
    return worker


@pytest.mark.parametrize("point", ["rows", "before commit", "after commit"])
def test_a_second_owner_during_a_batch(
    workers: Workers[Task], fresh: Callable[[], URL], point: str, tmp_path: Path
) -> None:
    """It waits for the transaction of the first owner, or fences it; no record is lost."""
    url = fresh()
    task = task_for(url, 200)
    file = tmp_path / "hold"
    first = hold(workers, task, point, file)
    task.hold_at = ""
    second = workers.start(task)
    if point == "after commit":
        assert workers.wait(second) == 0, workers.stderr_text()
        file.unlink()
    else:
        file.unlink()
        assert workers.wait(second) == 0, workers.stderr_text()
    # It may have finished before the second started.
    assert workers.wait(first) in ((FENCED,) if point == "after commit" else (FENCED, 0))
    assert check(url, "at the end") == 200


@pytest.mark.parametrize("point", ["rows", "before commit", "after commit"])
def test_a_server_killed_during_a_batch(
    workers: Workers[Task], durable: DatabaseServer, point: str, tmp_path: Path
) -> None:
    """The writer continues when the server is back, from the recovered state."""
    url = durable.fresh()
    task = task_for(url, 60)
    file = tmp_path / "hold"
    worker = hold(workers, task, point, file)
    durable.kill()
    durable.start()
    assert check(url, "recovered") == (30 if point == "after commit" else 20)
    file.unlink()
    assert workers.wait(worker) == 0, workers.stderr_text()
    assert check(url, "at the end") == 60
