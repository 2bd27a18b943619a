"""Source and sink in a Spark Declarative Pipeline: the example of docs/spark.md, run twice (D1)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pyarrow.parquet as pq
import pytest

from penstock.spark.run.java import find_java
from penstock.testing import Broker
from tests.support.spark.topic_sinks import committed
from tests.support.spark.topics import Topics

pytestmark = pytest.mark.long

DOCS = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED = re.compile(r"Spark Connect server started at: (\S+)")
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # As documented: the second run must find the tables of the first.
    "spark.sql.catalogImplementation": "hive",
}


def example(servers: str, directory: Path) -> None:
    """Writes the files of the example, for this broker, to the directory."""
    section = DOCS.read_text().partition("\n## In a declarative pipeline\n")[2]
    spec, definitions = re.findall(r"```(?:yaml|python)\n(.*?)```", section, re.DOTALL)
    storage = "file:///tmp/clicks-pipeline"
    assert storage in spec
    (directory / "spark-pipeline.yml").write_text(
        spec.replace(storage, f"file://{directory}/storage")
    )
    assert "localhost:9092" in definitions
    (directory / "clicks.py").write_text(definitions.replace("localhost:9092", servers))


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(find_java(os.environ).home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Returns the address of a new Spark Connect server with tables and catalog in the directory.

    `spark-pipelines run` would start one on a fixed port.
    """
    command = [str(spark_home() / "bin" / "spark-submit"), "--class", SERVER]
    for name, value in SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    with subprocess.Popen(
        [*command, "spark-internal"],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        # Its output must be read, otherwise it blocks when the pipe is full.
        output: list[str] = []
        address: Future[str] = Future()

        def listen(lines: Iterable[str]) -> None:
            for line in lines:
                output.append(line)
                started = STARTED.search(line)
                if started:
                    address.set_result(f"sc://{started[1]}")
            if not address.done():
                address.set_exception(AssertionError("".join(output[-50:])))

        listening = Thread(target=listen, args=(process.stdout,))
        listening.start()
        try:
            yield address.result(120)
        finally:
            # Killed without waiting; its catalog survives.
            os.killpg(process.pid, signal.SIGKILL)
            listening.join()


def run(directory: Path, remote: str) -> None:
    """Runs `spark-pipelines run` with checkpoints in the directory."""
    done = subprocess.run(
        [str(spark_home() / "bin" / "spark-pipelines"), "run", "--remote", remote],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "Run is COMPLETED" in done.stdout


def counts(directory: Path) -> dict[str, int]:
    """Returns the rows of the view."""
    rows = pq.read_table(directory / "spark-warehouse" / "clicks_by_page").to_pylist()
    return {row["page"]: row["count"] for row in rows}


@pytest.mark.timeout(600)
def test_the_example_of_the_docs(broker: Broker, tmp_path: Path) -> None:
    """The second run has the records that came after the first one, without duplicates."""
    example(broker.bootstrap_servers, tmp_path)
    with Topics(broker.bootstrap_servers) as topics:
        topics.create("clicks", 2)
        topics.create("visits")
        pages: list[str] = []
        for part in ({0: 3, 1: 2}, {0: 2, 1: 0}):
            topics.fill("clicks", part)
            pages += [
                f"{where}-{number}" for where, count in part.items() for number in range(count)
            ]
            with connect_server(tmp_path) as remote:
                run(tmp_path, remote)
            written = committed(broker.bootstrap_servers, "visits")
            assert sorted((record.key or b"").decode() for record in written) == sorted(pages)
            assert counts(tmp_path) == {page: pages.count(page) for page in pages}
