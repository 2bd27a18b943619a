"""Runs a pipeline: all its queries in one Spark session, until they are done or one fails."""

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.failures import SparkStoppedError, is_spark_gone, spark_gone_error
from penstock.spark.run.owners import new_owner
from penstock.spark.run.query import Query, QueryResult, StepHook
from penstock.spark.run.session import active_session, end_session, session
from penstock.spark.sinks.registry import SinkFactory, create_sink
from penstock.spark.watch.run_listener import RunListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_LOOK_S = 0.05


@dataclass(frozen=True)
class RunResult:
    queries: tuple[QueryResult, ...]

    @property
    def rows(self) -> int:
        return sum(query.rows for query in self.queries)

    @property
    def dead_letters(self) -> int:
        return sum(query.dead_letters for query in self.queries)


def run(
    spec: PipelineSpec,
    *,
    once: bool = False,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    listeners: Sequence[RunListener] = (),
    stop: Event | None = None,
    sinks: SinkFactory = create_sink,
    at: StepHook = lambda step: None,
) -> RunResult:
    """Run until `stop` is set, or SIGINT or SIGTERM comes; with `once`, until what was there when
    it started is read. A batch that is under way is finished first; a second signal cancels it.

    Without `spark`, and if this process has none, a session is made, and ended with it. Raises the
    error of the first query that fails, after all others were stopped: `FencedError`,
    `CheckpointLostError`, ….
    """
    asked = Event() if stop is None else stop
    queries: list[Query] = []
    try:
        with _spark_watched(spec), ExitStack() as open_things:
            open_things.enter_context(_signals_set(asked))
            spark = spark or active_session()
            if spark is None:
                spark = session(spec, master, short=once)
                open_things.callback(end_session, spark)
            owner = new_owner()
            for sink in spec.sinks:
                if asked.is_set():
                    break
                made = sinks(spec, sink, spark)
                query = Query(spark, spec, sink, made, owner=owner, listeners=listeners, at=at)
                open_things.callback(query.close)
                # Whatever happens from here on, nothing goes on running; the last thing first.
                open_things.push(query.stop_after)
                queries.append(query)
                query.start(once=once)
            _wait(queries, asked)
            for query in queries:
                query.begin_no_batch()
            for query in queries:
                query.stop()
            for query in queries:
                if query.error is not None:
                    raise query.error
    except SparkStoppedError as error:
        # A signal to a group of processes is one to Spark's as well.
        if not asked.is_set():
            raise
        _log.warning("the batch at hand was not finished: %s", error)
    return RunResult(tuple(query.result for query in queries))


def _wait(queries: Sequence[Query], asked: Event) -> None:
    """Until all are done, one has failed, or somebody asks to stop."""
    while not asked.wait(_LOOK_S):
        ended = [query for query in queries if not query.is_active]
        if len(ended) == len(queries) or any(each.error is not None for each in ended):
            return


@contextmanager
def _spark_watched(spec: PipelineSpec) -> Iterator[None]:
    """Where Spark's process is gone, whatever we ask of it fails in a way of its own."""
    try:
        yield
    except Exception as error:
        if not is_spark_gone(error):
            raise
        raise spark_gone_error(spec.name) from error


@contextmanager
def _signals_set(asked: Event) -> Iterator[None]:
    """SIGINT and SIGTERM ask to stop; the second one insists. Only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
