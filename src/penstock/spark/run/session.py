"""The Spark session of a pipeline: defaults for streaming, settings of the pipeline on top."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.spark.errors import MissingPartError, PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.java import cache_directory, find_java, require_spark, write_file
from penstock.spark.run.jvm import JavaObject
from penstock.spark.run.jvm_archive import archive_of, options_for
from penstock.spark.run.masters import check_master, is_local, startup_error
from penstock.spark.run.spark_home import unpacked_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
# The same level as above, or Spark says that it changes it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# A query that fails is reported once, by whoever runs the pipeline.
logger.batch.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.batch.level = off
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.stage.name = org.apache.spark.scheduler.TaskSetManager
logger.stage.level = off
# That a cluster has no free machines for us is nowhere else to be seen.
logger.resources.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.resources.level = warn
"""

_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For jobs of seconds: the second compiler costs more than it brings."""

SQL_DEFAULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Those that can be set for each query, whatever session there is."""

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""For a checkpoint in a folder of this machine: as safe there as the usual one, which starts a
process for each name that may be a link, fifty times for a small batch."""


_TASK_PATIENCE_S = 10.0


def settings(
    spec: PipelineSpec, master: str | None = None, *, short: bool = False
) -> dict[str, str]:
    """All settings of the session. `short` is for jobs of seconds. Those of the pipeline win."""
    chosen = master or spec.spark.get("spark.master") or "local[*]"
    found = {
        "spark.app.name": f"penstock {spec.name}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The rows of a batch go through the driver, whose size `max_batch_records` bounds.
        "spark.driver.maxResultSize": "0",
        **SQL_DEFAULTS,
    }
    if is_local(chosen):
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(_local_cores(chosen)),
        }
    found |= spec.spark
    found["spark.master"] = chosen
    options = [f'"-Dlog4j2.configurationFile={_log_settings()}"']
    if short:
        options.append(_QUICK_JVM)
    given = spec.spark.get("spark.driver.extraJavaOptions")
    found["spark.driver.extraJavaOptions"] = " ".join([*options, given] if given else options)
    return found


def session(
    spec: PipelineSpec, master: str | None = None, *, short: bool = False
) -> "SparkSession":
    """A session for the pipeline; the one that this process has already, if it has one.

    `master` is passed on as it is: `local[*]`, `spark://…`, `yarn`, `k8s://…`. `MissingPartError`
    says what to install, `PipelineError` why a cluster cannot be used.
    """
    require_spark()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors.exceptions.base import PySparkRuntimeError
        from pyspark.sql import SparkSession
    active = active_session()
    if active is not None:
        return active
    chosen = settings(spec, master, short=short)
    check_master(chosen["spark.master"], os.environ)
    java = find_java(os.environ)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    cache = cache_directory(os.environ)
    archive = archive_of(java, cache)
    if archive.exists():
        chosen["spark.driver.extraJavaOptions"] += f" {options_for(archive)}"
    for name, value in chosen.items():
        builder = builder.config(name, value)
    if is_local(chosen["spark.master"]):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # YARN copies Spark's Python to its machines, from the zip.
    unpacked = unpacked_home(cache) if chosen["spark.master"] != "yarn" else nullcontext()
    try:
        with unpacked, _java_home(java.home), _interrupted_later():
            SparkContext.getOrCreate(SparkConf().setAll(list(chosen.items())))
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise MissingPartError(
                f"Java {java.version} ({java.found}: {java.home}) could not start Spark with "
                f"master {chosen['spark.master']}; what it says is above. Another Java is used "
                "where JAVA_HOME names it"
            ) from error
        raise PipelineError(f"Spark could not start: {error}") from error
    except Py4JError as error:
        raise startup_error(chosen["spark.master"], error) from error


def end_session(spark: "SparkSession") -> None:
    """Stop Spark, when its last task has ended.

    A batch that has just begun when its query is stopped may be reading a static table already; if
    Spark is stopped before that task is, it logs an error.
    """
    deadline = time.monotonic() + _TASK_PATIENCE_S
    try:
        while time.monotonic() < deadline and _is_busy(spark):
            time.sleep(0.01)
    finally:
        spark.stop()


def _is_busy(spark: "SparkSession") -> bool:
    context: JavaObject = spark.sparkContext._jsc.sc()
    if not context.dagScheduler().activeJobs().isEmpty():
        return True
    running = context.taskScheduler().runningTasksByExecutors().valuesIterator()
    while running.hasNext():
        if running.next():
            return True
    return False


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """Only Spark is to use it: a script is all there is in it."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME")
        if before is not None:
            os.environ["JAVA_HOME"] = before


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Ctrl-C waits for the JVM: one that its Python gives up while it starts stays for ever.

    Spark leaves a handler of its own behind, unless the caller has one.
    """
    if current_thread() is not main_thread():
        yield
        return
    interrupts: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda *given: interrupts.append(given))
    try:
        yield
    finally:
        if before is not signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
        if interrupts and callable(before):
            before(*interrupts[0])


def active_session() -> "SparkSession | None":
    """The one that this process has already."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def query_session(base: "SparkSession", spec: PipelineSpec) -> "SparkSession":
    """A session on the same cluster with views and settings of its own, for one query."""
    made = base.newSession()
    _quieten_python()
    wanted = {name: each for name, each in spec.spark.items() if name.startswith("spark.sql.")}
    for name, value in {**SQL_DEFAULTS, **wanted}.items():
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    context = base.sparkContext
    here = is_local(context.master or "")
    if "spark.sql.shuffle.partitions" not in wanted and not here:
        made.conf.set("spark.sql.shuffle.partitions", str(max(8, context.defaultParallelism)))
    if _FILE_MANAGER not in wanted and here and urlsplit(spec.checkpoint).scheme in ("", "file"):
        jvm: JavaObject = context._jvm
        if jvm.org.apache.spark.util.Utils.classIsLoadable(_PLAIN_FILES):
            made.conf.set(_FILE_MANAGER, _PLAIN_FILES)
    return made


def _quieten_python() -> None:
    """pyspark writes whole stack traces to the terminal; who runs the pipeline says what is
    wrong."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _local_cores(master: str) -> int:
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside == "":
        return 1
    return int(inside) if inside.isdecimal() else os.cpu_count() or 1


def _log_settings() -> Path:
    return write_file(cache_directory(os.environ) / "spark-log4j2.properties", _LOG_SETTINGS)
