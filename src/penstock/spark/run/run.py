"""Runs a pipeline: all its queries in one Spark session, until they end or one fails."""

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
from penstock.spark.run.query import Query, QueryResult, StepHook, new_owner
from penstock.spark.run.session import active_session, end_session, session
from penstock.spark.sinks.registry import SinkFactory, create_sink
from penstock.spark.watch.run_listener import RunListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
_POLL_S = 0.05


@dataclass(frozen=True)
class RunResult:
    """The numbers of all queries of a run."""

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
    """Runs until `stop` is set, or until SIGINT or SIGTERM; with `once`, until the records that
    existed at the start are read. The current batch is finished first; a second signal cancels it.

    Without `spark` it uses the active session of this process, or creates one and ends it. If a
    query fails, it stops all others and raises the error of the first one: `FencedError`,
    `CheckpointLostError`, ….
    """
    stop = Event() if stop is None else stop
    queries: list[Query] = []
    try:
        with _spark_exit_explained(spec), ExitStack() as stack:
            stack.enter_context(_signals_set(stop))
            spark = spark or active_session()
            if spark is None:
                spark = session(spec, master, short=once)
                stack.callback(end_session, spark)
            owner = new_owner()
            for sink in spec.sinks:
                if stop.is_set():
                    break
                query = Query(
                    spark,
                    spec,
                    sink,
                    sinks(spec, sink, spark),
                    owner=owner,
                    listeners=listeners,
                    at=at,
                )
                stack.callback(query.close)
                # Whatever happens from here on, no query continues to run.
                stack.push(query.stop_after)
                queries.append(query)
                query.start(once=once)
            _wait(queries, stop)
            for query in queries:
                query.begin_no_batch()
            for query in queries:
                query.stop()
            for query in queries:
                if query.error is not None:
                    raise query.error
    except SparkStoppedError as error:
        # A signal to a process group stops Spark's process, too.
        if not stop.is_set():
            raise
        logger.warning("the current batch was not finished: %s", error)
    return RunResult(tuple(query.result for query in queries))


def _wait(queries: Sequence[Query], stop: Event) -> None:
    """Returns when all queries have ended, one has failed, or `stop` is set."""
    while not stop.wait(_POLL_S):
        ended = [query for query in queries if not query.is_active]
        if len(ended) == len(queries) or any(query.error is not None for query in ended):
            return


@contextmanager
def _spark_exit_explained(spec: PipelineSpec) -> Iterator[None]:
    """Replaces the many errors that calls raise after Spark's process has ended by one."""
    try:
        yield
    except Exception as error:
        if not is_spark_gone(error):
            raise
        raise spark_gone_error(spec.name) from error


@contextmanager
def _signals_set(stop: Event) -> Iterator[None]:
    """SIGINT and SIGTERM set `stop`; the second one raises KeyboardInterrupt.

    Does nothing outside of the main thread, where Python sets no signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    handlers = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
