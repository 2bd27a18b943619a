"""A pipeline on a real Spark cluster, which loses a machine and an executor (D2, D3).

Master, workers, executors, driver, broker and databases are separate processes. The driver is
`penstock pipeline run --master spark://…`; the executors get Python from an archive, as described
in docs/pipelines-cluster.md.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect

from penstock.client.producer.producer import Producer
from penstock.testing import Broker
from tests.support.spark.cluster import QUICK, SparkCluster
from tests.support.spark.database_sinks import rows_of
from tests.support.spark.databases import MariaDbServer, PostgreSqlServer, engine_for, sqlite_url
from tests.support.spark.topic_sinks import committed

pytestmark = pytest.mark.long


RECORDS = 6000
PEOPLE = 5
PER_MINUTE = 3000
HELD = ("staged", "driven", "sent")
"""Sinks whose tasks are held, first on the machine that is killed, then on the other one."""
PATIENCE_S = 180.0
RUN = (sys.executable, "-m", "penstock", "pipeline", "run", "pipeline.yml", "--once", "--json")

PIPELINE = """\
name: cluster
bootstrap_servers: {servers}
max_batch_records: 2000
sources:
  events:
    topic: events
    schema: id bigint, who bigint, at timestamp
    watermark: {{column: at, delay: 1 hour}}
steps:
  held_staged:
    function: steps.py:held_staged
  held_driven:
    function: steps.py:held_driven
  held_sent:
    function: steps.py:held_sent
  per_minute:
    sql: |
      SELECT window.start AS start, who, count(*) AS n, sum(id) AS total
      FROM events GROUP BY window(at, '1 minute'), who
sinks:
  staged:
    from: held_staged
    database: {postgresql}
    table: staged
    writing: staged
  driven:
    from: held_driven
    database: {sqlite}
    table: driven
  sent:
    from: held_sent
    topic: results
  per_minute:
    from: per_minute
    database: {mariadb}
    table: per_minute
    mode: upsert
    key: [start, who]
    writing: staged
spark:
  spark.archives: environment.tar.gz#environment
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
  spark.driver.memory: 768m
  spark.executor.memory: 512m
  spark.executor.extraJavaOptions: {quick}
  spark.sql.shuffle.partitions: 2
  # Many small pieces, and none of them waits for the next: each is a token of the staging table.
  spark.sql.execution.arrow.maxRecordsPerBatch: 200
  spark.buffer.size: 1024
"""

STEPS = '''\
def held(views, name):
    """The rows of `events`. One task on each machine stops after some of them, for ever: on the
    first machine at once, on the second when the file `go` is there."""

    def rows(batches):
        import json
        import os
        import time

        # An executor works in a directory below that of its worker.
        machine = 0 if "/worker-0/" in os.getcwd() else 1
        ids = []
        for number, batch in enumerate(batches):
            yield batch
            ids += batch.column("id").to_pylist()
            if number != 2 or (machine == 1 and not os.path.exists("{directory}/go")):
                continue
            marker = f"{directory}/{{name}}-{{machine}}"
            try:
                os.close(os.open(f"{{marker}}.claimed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            with open(f"{{marker}}.new", "w") as file:
                json.dump({{"pid": os.getpid(), "ids": ids}}, file)
            os.rename(f"{{marker}}.new", marker)
            time.sleep(3600)

    events = views["events"].select("id", "who")
    return events.mapInArrow(rows, events.schema)


def held_staged(views):
    return held(views, "staged")


def held_driven(views):
    return held(views, "driven")


def held_sent(views):
    return held(views, "sent")
'''


@contextmanager
def pipeline_run(directory: Path, master: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `penstock pipeline run --once` in a process; all its processes end with the block."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": "./environment/bin/python",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (directory / "driver.err").open("wb") as errors:
        process = subprocess.Popen(
            [*RUN, "--master", master],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=directory,
            env=environment,
            start_new_session=True,
            text=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def write_environment(directory: Path) -> None:
    """Creates a Python like conda-pack and venv-pack: unpacked here, packed for the executors."""
    python = directory / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(directory / "environment.tar.gz", "w:gz") as packed:
        packed.add(directory / "environment", ".")


def produce(servers: str) -> None:
    """Produces numbered records of two minutes."""
    with Producer(bootstrap_servers=servers) as producer:
        for partition in range(2):
            values = [
                json.dumps(
                    {
                        "id": number,
                        "who": number % PEOPLE,
                        "at": f"2026-01-01T00:{number // PER_MINUTE:02}:00Z",
                    }
                ).encode()
                for number in range(RECORDS)
                if number % 2 == partition
            ]
            producer.send_many("events", values, partition=partition).result(60)


def staged_ids(engine: Engine) -> set[int]:
    return {
        int(str(row["id"]))
        for name in inspect(engine).get_table_names()
        if name.startswith("penstock_stage_")
        for row in rows_of(engine, name)
    }


def staged_rows(engine: Engine) -> int:
    names = [name for name in inspect(engine).get_table_names() if "penstock_stage_" in name]
    assert names
    return sum(len(rows_of(engine, name)) for name in names)


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str], errors: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert process.poll() is None, f"the driver has ended: {errors.read_text()}"
        assert time.monotonic() < deadline, errors.read_text()
        # Another process does it, so the test must poll.
        time.sleep(0.05)


def wait_until_held(
    machine: int, rows: Engine, driver: subprocess.Popen[str], directory: Path
) -> list[int]:
    """Waits until a task of each sink is held and rows of one are staged; returns the processes."""
    markers = [directory / f"{name}-{machine}" for name in HELD]
    errors = directory / "driver.err"
    wait_until(lambda: all(marker.exists() for marker in markers), driver, errors)
    held = [json.loads(marker.read_text()) for marker in markers]
    half_staged = set(held[0]["ids"])
    wait_until(lambda: bool(staged_ids(rows) & half_staged), driver, errors)
    return [row["pid"] for row in held]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """Each machine has cores for the tasks of all queries, so each query has tasks on both."""
    with SparkCluster(cores=4) as cluster:
        yield cluster


def test_a_machine_and_an_executor_that_are_killed_during_tasks_lose_nothing(
    cluster: SparkCluster,
    broker: Broker,
    postgresql: PostgreSqlServer,
    mariadb: MariaDbServer,
    tmp_path: Path,
) -> None:
    """First a worker with its executors is killed, then only the executor of the other worker.

    Rows of unfinished tasks are neither stored nor sent: those that are staged already are never
    merged, and are removed. Windows, whose state was on both machines, are correct as well.
    """
    broker.create_topic("events", 2)
    broker.create_topic("results", 2)
    produce(broker.bootstrap_servers)
    urls = {
        "postgresql": postgresql.fresh(),
        "mariadb": mariadb.fresh(),
        "sqlite": sqlite_url(tmp_path),
    }
    texts = {name: url.render_as_string(hide_password=False) for name, url in urls.items()}
    (tmp_path / "pipeline.yml").write_text(
        PIPELINE.format(servers=broker.bootstrap_servers, quick=" ".join(QUICK), **texts)
    )
    (tmp_path / "steps.py").write_text(STEPS.format(directory=tmp_path))
    write_environment(tmp_path)
    errors = tmp_path / "driver.err"
    with (
        engine_for(urls["postgresql"]) as rows,
        engine_for(urls["sqlite"]) as driven,
        engine_for(urls["mariadb"]) as windows,
        pipeline_run(tmp_path, cluster.url) as driver,
    ):
        [lost, *remaining] = wait_until_held(0, rows, driver, tmp_path)
        assert {cluster.worker_of(item) for item in (lost, *remaining)} == {0}
        cluster.kill_worker(0)
        (tmp_path / "go").touch()
        [lost, *remaining] = wait_until_held(1, rows, driver, tmp_path)
        assert {cluster.worker_of(item) for item in (lost, *remaining)} == {1}
        cluster.kill_executor(lost)
        printed, _ = driver.communicate(timeout=PATIENCE_S)
        assert driver.returncode == 0, errors.read_text()

        result = {
            name: [int(str(row["id"])) for row in rows_of(where, name)]
            for name, where in (("staged", rows), ("driven", driven))
        }
        assert staged_rows(rows) == 0
        per_minute = rows_of(windows, "per_minute")
        assert staged_rows(windows) == 0
    sent = committed(broker.bootstrap_servers, "results")
    result["sent"] = [json.loads(record.value or b"")["id"] for record in sent]
    for name in HELD:
        assert sorted(result[name]) == list(range(RECORDS)), Counter(result[name]).most_common(3)
    expected = Counter((number // PER_MINUTE, number % PEOPLE) for number in range(RECORDS))
    assert sorted(int(str(row["n"])) for row in per_minute) == sorted(expected.values())
    assert sum(int(str(row["total"])) for row in per_minute) == sum(range(RECORDS))
    rows_stored = {query["query"]: query["rows"] for query in json.loads(printed)}
    assert [rows_stored[f"cluster.{name}"] for name in HELD] == [RECORDS] * 3
