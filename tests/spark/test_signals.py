"""Signals to `penstock pipeline run`: it finishes the batch and ends all processes (D4)."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.client import Producer
from penstock.testing import Broker
from tests.support.spark.cluster import family

pytestmark = pytest.mark.long

PATIENCE_S = 180.0
RUN = (sys.executable, "-m", "penstock", "pipeline", "run", "pipeline.yml")

PIPELINE = """\
name: {name}
bootstrap_servers: {servers}
sources:
  events:
    topic: {name}
    schema: id bigint
steps:
  held:
    function: steps.py:held
sinks:
  out:
    from: held
    database: sqlite:///out.db
    table: results
"""

STEPS = """\
def held(views):
    def rows(batches):
        import pathlib
        import time

        for batch in batches:
            pathlib.Path("{directory}/held").touch()
            while not pathlib.Path("{directory}/go").exists():
                time.sleep(0.05)
            yield batch

    return views["events"].mapInArrow(rows, views["events"].schema)
"""


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        # Another process does it, so the test must poll.
        time.sleep(0.05)


def ids(directory: Path) -> list[int]:
    with closing(sqlite3.connect(directory / "out.db")) as connection:
        there = "SELECT 1 FROM sqlite_master WHERE name = 'results'"
        if connection.execute(there).fetchone() is None:
            return []
        return [row[0] for row in connection.execute("SELECT id FROM results ORDER BY id")]


@pytest.mark.parametrize(
    ("number", "times", "code"),
    [(signal.SIGTERM, 1, 0), (signal.SIGINT, 1, 0), (signal.SIGINT, 2, 130)],
    ids=["SIGTERM", "Ctrl-C", "Ctrl-C twice"],
)
def test_a_signal_to_the_whole_group_in_the_middle_of_a_batch(
    broker: Broker, tmp_path: Path, number: signal.Signals, times: int, code: int
) -> None:
    """A terminal, `timeout` and others signal the process group, including Spark's processes."""
    name = f"signals-{number}-{times}"
    broker.create_topic(name, 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for index in range(100):
            producer.send(name, json.dumps({"id": index}).encode())
    servers = broker.bootstrap_servers
    (tmp_path / "pipeline.yml").write_text(PIPELINE.format(name=name, servers=servers))
    (tmp_path / "steps.py").write_text(STEPS.format(directory=tmp_path))
    with (tmp_path / "err").open("wb") as errors:
        process = subprocess.Popen(
            RUN,
            cwd=tmp_path,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        wait_until(lambda: (tmp_path / "held").exists() or process.poll() is not None)
        started = family(process.pid)
        assert len(started) > 3, (tmp_path / "err").read_text()
        os.killpg(process.pid, number)
        if times == 2:
            time.sleep(0.5)  # so that the kernel does not merge two signals
            os.killpg(process.pid, number)
        else:
            (tmp_path / "go").touch()
        assert process.wait(PATIENCE_S) == code, (tmp_path / "err").read_text()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    errors_text = (tmp_path / "err").read_text()
    assert "Traceback" not in errors_text
    assert "ERROR" not in errors_text
    assert ids(tmp_path) == (list(range(100)) if times == 1 else [])
    (tmp_path / "go").touch()
    done = subprocess.run(
        [*RUN, "--once"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ids(tmp_path) == list(range(100))


SESSION = """\
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.session import session

spec = PipelineSpec(name="p", bootstrap_servers="localhost:9092", sources=(), sinks=())
print(session(spec, "local[1]", short=True))
"""


def test_ctrl_c_while_spark_starts_leaves_no_jvm() -> None:
    """With pyspark alone the JVM would stay: it is abandoned before it knows its parent."""
    with subprocess.Popen(
        [sys.executable, "-c", SESSION],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        wait_until(lambda: len(family(process.pid)) > 1 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        # Returns when no process has its standard output open.
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGINT, output
    assert "KeyboardInterrupt" in output
