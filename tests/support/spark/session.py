"""A local Spark session for tests: small, quiet, with Spark's Kafka connector on its path."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from penstock.spark.run.java import cache_directory, find_java
from penstock.spark.run.jvm_archive import archive_of, options_for
from penstock.spark.run.spark_home import unpacked_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS = (Path(__file__).resolve().parents[3] / ".parts").resolve()
CONNECTOR = _PARTS / "spark-kafka" / "libs"

# Speeds up the start of sessions, including those of child processes; `make setup-parts` creates
# what takes long.
os.environ["XDG_CACHE_HOME"] = str(_PARTS / "cache")


def connector_jars() -> list[str]:
    """Returns the jars of `format("kafka")`."""
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
    # In short jobs the second compiler costs more than it gains. Processes are started directly,
    # because Hadoop starts `chmod` for each file.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
    ),
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    # Saves three calls of Java for each expression, which let errors name a line.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # On a TCP port Spark takes the first connection for its Python process. It may come from a
    # client of a stopped broker of another test, whose port was reused.
    "spark.python.unix.domain.socket.enabled": "true",
}


@contextmanager
def _remembered_lookups() -> Iterator[None]:
    """Makes py4j look each name of Java up once.

    pyspark looks `functions` up for each call of one, and Java searches all jars of Spark for a
    class of the name of each package.
    """
    from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

    def remembering(kind: type[Any]) -> Callable[[Any, str], Any]:
        look_up = kind.__getattr__

        def look_up_once(self: Any, name: str) -> Any:
            value = look_up(self, name)
            # Other values are fields, which may change.
            if isinstance(value, JavaClass | JavaMember | JavaPackage):
                self.__dict__[name] = value
            return value

        return look_up_once

    with ExitStack() as stack:
        for kind in (JavaClass, JavaPackage, JVMView):
            stack.enter_context(patch.object(kind, "__getattr__", remembering(kind)))
        yield


@contextmanager
def spark_session(master: str = "local[2]", **settings: str) -> "Iterator[SparkSession]":
    """Yields a session; its JVM ends with the block."""
    # The path of a socket is limited: a directory of pytest would be too long.
    with TemporaryDirectory(prefix="spark-", dir="/tmp") as sockets:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pyspark.sql import SparkSession
        cache = cache_directory(os.environ)
        java = find_java(os.environ)
        builder = SparkSession.builder.master(master).config(
            "spark.jars", ",".join(connector_jars())
        )
        chosen = {**SETTINGS, "spark.python.unix.domain.socket.dir": sockets, **settings}
        archive = archive_of(java, cache)
        if archive.exists():
            chosen["spark.driver.extraJavaOptions"] += f" {options_for(archive)}"
        for name, value in chosen.items():
            builder = builder.config(name, value)
        with patch.dict(os.environ, JAVA_HOME=str(java.home)), unpacked_home(cache):
            session = builder.getOrCreate()
        gateway = session.sparkContext._gateway
        assert gateway is not None
        # Otherwise half of all files of checkpoints are checksums of the others.
        configuration = session._jsc.hadoopConfiguration()
        local_files = gateway.jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration)
        local_files.setWriteChecksum(False)
        # As pipelines do: Spark's default starts a process for each name that may be a link. Their
        # queries have sessions of their own, which do not inherit this.
        session.conf.set(
            "spark.sql.streaming.checkpointFileManagerClass",
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager",
        )
        try:
            with _remembered_lookups():
                yield session
        finally:
            session.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(30)
