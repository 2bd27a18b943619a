"""One query of a pipeline, exactly once: from its sources to its sink."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Lock
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.spark.errors import PipelineError, ProgressError, SparkPartError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.pipeline.model import PipelineSpec, SinkSpec, SourceSpec
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress
from penstock.spark.run.compile import CompiledQuery, compile_query
from penstock.spark.run.dead_letter_reader import DeadLetterReader
from penstock.spark.run.failures import failure_of
from penstock.spark.run.offset_log import Checkpoint, CheckpointFiles, source_of
from penstock.spark.run.resume import CheckpointState, check_first_run, resume_position
from penstock.spark.run.session import query_session
from penstock.spark.run.source_options import starting_options_of
from penstock.spark.watch.latest_offsets import LatestOffsets
from penstock.spark.watch.run_listener import RunListener

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.sinks.port import Sink
    from penstock.spark.watch.batch_reporter import BatchReporter

_TRIGGER_PATIENCE_S = 20.0
_REPORT_PATIENCE_S = 10.0

StepHook = Callable[[str], None]
"""Called with the name of each step that a query takes, for tests that stop it there: `opened`,
`begun`, `batch`, `rows` (the plan has run), `dead-letters` (they are known; nothing is stored yet),
`stored` (the sink has committed, Spark has not), `skipped`."""


@dataclass(frozen=True)
class QueryResult:
    """What a query has done in one run."""

    key: str
    batches: int = 0
    """That were stored."""
    skipped: int = 0
    """That had been stored before."""
    rows: int = 0
    dead_letters: int = 0
    end: Progress | None = None
    """How far the sink is."""
    seconds: float = 0.0


class _StoppedError(Exception):
    """A batch came after somebody had asked to stop; it is left for the next run."""


class Query:
    """Used by one thread; Spark calls back in one of its own."""

    def __init__(
        self,
        base: "SparkSession",
        spec: PipelineSpec,
        sink_spec: SinkSpec,
        sink: "Sink",
        *,
        owner: str,
        listeners: Sequence[RunListener] = (),
        at: StepHook = lambda step: None,
    ) -> None:
        self.key = spec.query(sink_spec)
        self.location = location_of(spec, sink_spec)
        self._spec = spec
        self._sink_spec = sink_spec
        self._sink = sink
        self._owner = owner
        self._listeners = listeners
        self._at = at
        self._spark = query_session(base, spec)
        self._checkpoint = Checkpoint(CheckpointFiles(self._spark, self.location))
        self._dead_letters = DeadLetterReader(self._spark, spec, self.key, sink)
        self._query: StreamingQuery | None = None
        self._reports: BatchReporter | None = None
        self._latest_offsets = LatestOffsets(spec.client_settings)
        self._has_started = Event()
        self._stopping = Event()
        self._busy = Lock()
        self._error: BaseException | None = None
        self._stored = StoredProgress({})
        self._begin: Progress = {}
        self._last: tuple[int, Progress] | None = None
        self._result = QueryResult(self.key)
        self._began_at = time.monotonic()

    # --- Start ------------------------------------------------------------------------------------

    def start(self, *, once: bool) -> None:
        """Take the sink over, find out where to go on, and let Spark run.

        `once`: read what is there now, and end.
        """
        try:
            compiled = self._prepare()
        except SparkPartError:
            raise
        except Exception as error:
            raise failure_of(self.key, error) from error
        for listener in self._listeners:
            listener.begins(self.key, self._stored.progress)
        from penstock.spark.watch.batch_reporter import BatchReporter

        self._reports = BatchReporter(self.key, self._listeners, self._latest_offsets)
        self._spark.streams.addListener(self._reports)
        writer = (
            compiled.frame.writeStream.queryName(self.key)
            .outputMode(compiled.output_mode)
            .option("checkpointLocation", self.location)
            .foreachBatch(lambda frame, batch_id: self._run_batch(compiled, frame, batch_id))
        )
        try:
            if once:
                self._query = writer.trigger(availableNow=True).start()
            else:
                self._query = writer.trigger(processingTime=self._spec.trigger).start()
        except Exception as error:
            raise failure_of(self.key, error) from error
        finally:
            self._has_started.set()

    def _prepare(self) -> CompiledQuery:
        stored = self._sink.open(self._owner)
        self._dead_letters.open(self._owner)
        self._at("opened")
        seen = self._look()
        if stored is None:
            check_first_run(self.key, seen, self.location)
        known = stored.progress if stored is not None else {}
        if seen.planned is not None and seen.begin is not None:
            known = seen.begin
        starts: dict[str, SourceOffsets] = {}

        def start(source: SourceSpec) -> SourceOffsets:
            if source.name not in starts:
                found = known.get(source.name)
                if found is None and stored is not None and source.pattern is not None:
                    # No topic matched the pattern so far: all that come are new.
                    found = SourceOffsets({}, {}, source.name)
                starts[source.name] = found or self._first_offsets(source)
            return starts[source.name]

        compiled = compile_query(self._spark, self._spec, self._sink_spec, start)
        if stored is None:
            stored = StoredProgress({name: starts[source_of(name)] for name in compiled.sources})
            self._sink.begin_at(stored.progress)
            self._at("begun")
        begin = resume_position(self.key, stored, seen, compiled.needs)
        if seen.planned is None and seen.begin != begin:
            self._checkpoint.write_begin(begin)
        self._stored, self._begin = stored, begin
        return compiled

    def _look(self) -> CheckpointState:
        found = self._checkpoint
        planned = found.last_planned
        return CheckpointState(
            exists=found.exists,
            query_id=found.query_id or "",
            begin=found.begin,
            planned=planned,
            done=found.last_done,
            start=found.end_of(planned - 1) if planned else None,
            end=None if planned is None else found.end_of(planned),
        )

    def _first_offsets(self, source: SourceSpec) -> SourceOffsets:
        from penstock.spark.source.broker_offsets import BrokerOffsets
        from penstock.spark.source.options import stream_options

        options = stream_options(starting_options_of(self._spec, source))
        with BrokerOffsets(options) as broker:
            return broker.resolve(options.starting, is_start=True)

    # --- A batch ----------------------------------------------------------------------------------

    def _run_batch(self, compiled: CompiledQuery, frame: "DataFrame", batch_id: int) -> None:
        with self._busy:
            try:
                if self._stopping.is_set():
                    raise _StoppedError
                self._at("batch")
                self._apply(compiled, frame, self._batch(batch_id))
            except BaseException as error:
                self._error = error
                raise

    def _batch(self, batch_id: int) -> Batch:
        end = self._checkpoint.end_of(batch_id)
        if end is None:
            raise ProgressError(f"the checkpoint has no offsets of batch {batch_id}")
        start: Progress | None = self._begin
        if batch_id > 0:
            known = self._last is not None and self._last[0] == batch_id - 1
            start = self._last[1] if known and self._last else self._checkpoint.end_of(batch_id - 1)
        if start is None:
            raise ProgressError(f"the checkpoint has no offsets of batch {batch_id - 1}")
        self._last = batch_id, end
        return Batch(self._checkpoint.query_id or "", batch_id, start, end)

    def _apply(self, compiled: CompiledQuery, frame: "DataFrame", batch: Batch) -> None:
        if decide(self._stored, batch) is Decision.SKIP:
            if compiled.stateful:
                # The state must be made, or Spark finds it missing in the next batch.
                frame.write.format("noop").mode("append").save()
            self._result = replace(self._result, skipped=self._result.skipped + 1)
            self._at("skipped")
            return
        written = 0

        def dead_letters() -> "pa.Table | None":
            nonlocal written
            self._at("rows")
            self._has_started.wait()
            if self._query is None:
                raise PipelineError(f"{self.key} was stopped")
            found, written = self._dead_letters.of_batch(self._query, batch)
            self._at("dead-letters")
            return found

        applied = self._sink.write(frame, batch, dead_letters)
        self._at("stored")
        self._stored = StoredProgress(batch.end, batch.query_id, batch.batch_id)
        applied = replace(applied, dead_letters=applied.dead_letters + written)
        self._result = replace(
            self._result,
            batches=self._result.batches + 1,
            rows=self._result.rows + applied.rows,
            dead_letters=self._result.dead_letters + applied.dead_letters,
        )
        for listener in self._listeners:
            listener.stored(self.key, batch, applied)

    # --- End --------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def error(self) -> Exception | None:
        """Why the query ended, if not because it was done or asked to."""
        if isinstance(self._error, _StoppedError) or self._query is None:
            return None
        if self._error is not None:
            return failure_of(self.key, self._error)
        raised = self._query.exception()
        return None if raised is None else failure_of(self.key, raised)

    @property
    def result(self) -> QueryResult:
        seconds = time.monotonic() - self._began_at
        return replace(self._result, end=self._stored.progress, seconds=seconds)

    def stop_after(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """`stop`, at the end of a block. After a KeyboardInterrupt the batch at hand is cancelled;
        the next run makes it."""
        self.stop(is_patient=kind is not KeyboardInterrupt)

    def begin_no_batch(self) -> None:
        """The one at hand is the last."""
        self._stopping.set()

    def stop(self, *, is_patient: bool = True) -> None:
        """Let the batch at hand finish, then end."""
        self.begin_no_batch()
        query = self._query
        if query is None:
            return
        if is_patient:
            with self._busy:
                deadline = time.monotonic() + _TRIGGER_PATIENCE_S
            # Spark's own commit follows the sink's; without it the batch would run again. And what
            # is interrupted while it prepares a batch logs errors: if one comes, it ends itself.
            while query.isActive and _is_at_work(query) and time.monotonic() < deadline:
                time.sleep(0.01)
        query.stop()

    def close(self) -> None:
        """After the query has ended."""
        reports, self._reports = self._reports, None
        try:
            if reports is not None:
                if self._query is not None and not self._query.isActive:
                    reports.ended.wait(_REPORT_PATIENCE_S)
                self._spark.streams.removeListener(reports)
        finally:
            self._latest_offsets.close()
            with suppress(PipelineError):
                self._dead_letters.close()
            self._sink.close()


def _is_at_work(query: "StreamingQuery") -> bool:
    """Whether it is not waiting for the next trigger."""
    return bool(query.status["isTriggerActive"])


def location_of(spec: PipelineSpec, sink: SinkSpec) -> str:
    """The folder of the query's checkpoint."""
    return f"{spec.checkpoint.rstrip('/')}/{spec.name}/{sink.name}"
