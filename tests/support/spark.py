"""Spark on this machine, for tests: small, quiet, with Spark's own Kafka connector on its path."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = Path(__file__).resolve().parents[2] / ".parts" / "spark-kafka" / "libs"


def connector_jars() -> list[str]:
    """The jars of `format("kafka")`."""
    jars = sorted(map(str, CONNECTOR.glob("*.jar")))
    if not jars:
        raise FileNotFoundError(
            f"Spark's Kafka connector is missing ({CONNECTOR}): run `make setup-parts`"
        )
    return jars


SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Short jobs: the second compiler costs more than it brings.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(master: str = "local[2]", **settings: str) -> "Iterator[SparkSession]":
    """A session of this process; its JVM is gone at the end of the block."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession
    builder = SparkSession.builder.master(master).config("spark.jars", ",".join(connector_jars()))
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    gateway = session.sparkContext._gateway
    assert gateway is not None
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
