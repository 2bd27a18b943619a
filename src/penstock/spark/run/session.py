"""The Spark session of a pipeline: defaults for streaming, and the pipeline's own settings."""

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
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from penstock.spark.errors import MissingPartError, PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.java import cache_directory, find_java, require_spark, write_file
from penstock.spark.run.jvm_archive import archive_of, options_for
from penstock.spark.run.masters import check_master, is_local, startup_error
from penstock.spark.run.spark_home import unpacked_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JavaObject: TypeAlias = Any
"""An object in Spark's JVM. py4j has no static types: it looks attributes up at run time."""

_LOG_SETTINGS = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
# The same level as above, otherwise Spark logs that it changes it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# A query that fails is reported once, by the caller of `run`.
logger.batch.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.batch.level = off
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.stage.name = org.apache.spark.scheduler.TaskSetManager
logger.stage.level = off
# Nothing else reports that a cluster has no free resources.
logger.resources.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.resources.level = warn
"""

_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For jobs of seconds, in which the second compiler costs more than it gains."""

SQL_DEFAULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Files are static tables of the pipeline.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Settings that can be set for each query, in any session."""

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""For checkpoints in a local directory: as safe there as Spark's default, which starts a process
for each name that may be a link, fifty times in a small batch."""


_TASK_TIMEOUT_S = 10.0


def settings(
    spec: PipelineSpec, master: str | None = None, *, short: bool = False
) -> dict[str, str]:
    """Returns all settings of the session; those of the pipeline take precedence.

    `short` optimizes for jobs that run for seconds.
    """
    chosen = master or spec.spark.get("spark.master") or "local[*]"
    values = {
        "spark.app.name": f"penstock {spec.name}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The rows of a batch pass through the driver; `max_batch_records` bounds their number.
        "spark.driver.maxResultSize": "0",
        **SQL_DEFAULTS,
    }
    if is_local(chosen):
        values |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(_local_cores(chosen)),
        }
    values |= spec.spark
    values["spark.master"] = chosen
    options = [f'"-Dlog4j2.configurationFile={_log_settings()}"']
    if short:
        options.append(_QUICK_JVM)
    extra = spec.spark.get("spark.driver.extraJavaOptions")
    values["spark.driver.extraJavaOptions"] = " ".join([*options, extra] if extra else options)
    return values


def session(
    spec: PipelineSpec, master: str | None = None, *, short: bool = False
) -> "SparkSession":
    """Returns the active session of this process, or creates one for the pipeline.

    `master` is passed to Spark unchanged: `local[*]`, `spark://…`, `yarn`, `k8s://…`. Raises
    `MissingPartError` with what to install, `PipelineError` if a cluster cannot be used.
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
    # YARN copies Spark's Python packages to its machines from the zip files.
    unpacked = unpacked_home(cache) if chosen["spark.master"] != "yarn" else nullcontext()
    try:
        with unpacked, _java_home(java.home), _interrupted_later():
            SparkContext.getOrCreate(SparkConf().setAll(list(chosen.items())))
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise MissingPartError(
                f"Java {java.version} ({java.origin}: {java.home}) could not start Spark with "
                f"master {chosen['spark.master']}; its output is above",
                remedy="set JAVA_HOME to use another Java",
            ) from error
        raise PipelineError(f"Spark could not start: {error}") from error
    except Py4JError as error:
        raise startup_error(chosen["spark.master"], error) from error


def end_session(spark: "SparkSession") -> None:
    """Stops Spark after its last task has ended.

    A batch that has just begun when its query is stopped may already read a static table, and Spark
    logs an error if it is stopped before that task.
    """
    deadline = time.monotonic() + _TASK_TIMEOUT_S
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
    """Sets JAVA_HOME for Spark only: the directory contains nothing but a script."""
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
    """Delays Ctrl-C until the JVM has started: a JVM that is abandoned before never ends.

    Spark installs a SIGINT handler of its own, which stays unless the caller has one.
    """
    if current_thread() is not main_thread():
        yield
        return
    interrupts: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda *arguments: interrupts.append(arguments))
    try:
        yield
    finally:
        if before is not signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
        if interrupts and callable(before):
            before(*interrupts[0])


def active_session() -> "SparkSession | None":
    """Returns the active session of this process; None if there is none."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def query_session(base: "SparkSession", spec: PipelineSpec) -> "SparkSession":
    """Returns a session for one query, on the same cluster, with its own views and settings."""
    session = base.newSession()
    _disable_python_loggers()
    sql_settings = {
        name: value for name, value in spec.spark.items() if name.startswith("spark.sql.")
    }
    for name, value in {**SQL_DEFAULTS, **sql_settings}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    context = base.sparkContext
    runs_here = is_local(context.master or "")
    if "spark.sql.shuffle.partitions" not in sql_settings and not runs_here:
        partitions = max(8, context.defaultParallelism)
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    is_local_directory = runs_here and urlsplit(spec.checkpoint).scheme in ("", "file")
    if _FILE_MANAGER not in sql_settings and is_local_directory:
        jvm: JavaObject = context._jvm
        if jvm.org.apache.spark.util.Utils.classIsLoadable(_PLAIN_FILES):
            session.conf.set(_FILE_MANAGER, _PLAIN_FILES)
    return session


def _disable_python_loggers() -> None:
    """Disables loggers of pyspark that print whole stack traces; `run` reports the error."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _local_cores(master: str) -> int:
    cores = master.removeprefix("local").strip("[]").split(",")[0]
    if cores == "":
        return 1
    return int(cores) if cores.isdecimal() else os.cpu_count() or 1


def _log_settings() -> Path:
    return write_file(cache_directory(os.environ) / "spark-log4j2.properties", _LOG_SETTINGS)
