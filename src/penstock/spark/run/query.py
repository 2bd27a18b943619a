"""One query of a pipeline: Spark runs its batches, and each is stored exactly once.

`run.py` creates one `Query` for each sink, starts it, waits for its end and stops it.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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

_TRIGGER_TIMEOUT_S = 20.0
_REPORT_TIMEOUT_S = 10.0

StepHook = Callable[[str], None]
"""Called with the name of each step that a query reaches, for tests that stop it there: `opened`,
`begun`, `batch`, `rows` (the plan has run), `dead-letters` (they were read; nothing is stored yet),
`stored` (the sink has committed, Spark has not), `skipped`."""


@dataclass(frozen=True)
class QueryResult:
    """The numbers of one query in one run."""

    key: str
    batches: int = 0
    """Batches that were stored."""
    skipped: int = 0
    """Batches that an earlier run had stored."""
    rows: int = 0
    dead_letters: int = 0
    end: Progress | None = None
    """The progress of the sink."""
    seconds: float = 0.0


class _StoppedError(Exception):
    """Spark began a batch after a request to stop; the next run reads it."""


class Query:
    """One running query. Used by one thread; Spark runs the batches in a thread of its own."""

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

    # --- start

    def start(self, *, once: bool) -> None:
        """Takes the sink over, finds the position to resume from, and starts Spark's query.

        With `once` the query reads the records that exist now, and ends.
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
        checkpoint = self._read_checkpoint()
        if stored is None:
            check_first_run(self.key, checkpoint, self.location)
        known_starts = stored.progress if stored is not None else {}
        if checkpoint.planned is not None and checkpoint.begin is not None:
            known_starts = checkpoint.begin
        starts: dict[str, SourceOffsets] = {}

        def start(source: SourceSpec) -> SourceOffsets:
            if source.name not in starts:
                offsets = known_starts.get(source.name)
                if offsets is None and stored is not None and source.pattern is not None:
                    # No topic matched the pattern so far, so every match is a new topic.
                    offsets = SourceOffsets({}, {}, source.name)
                starts[source.name] = offsets or self._first_offsets(source)
            return starts[source.name]

        compiled = compile_query(self._spark, self._spec, self._sink_spec, start)
        if stored is None:
            stored = StoredProgress(
                {name: starts[source_of(name)] for name in compiled.plan.sources}
            )
            self._sink.begin_at(stored.progress)
            self._at("begun")
        begin = resume_position(self.key, stored, checkpoint, compiled.plan)
        if checkpoint.planned is None and checkpoint.begin != begin:
            self._checkpoint.write_begin(begin)
        self._stored, self._begin = stored, begin
        return compiled

    def _read_checkpoint(self) -> CheckpointState:
        checkpoint = self._checkpoint
        planned = checkpoint.last_planned
        return CheckpointState(
            exists=checkpoint.exists,
            query_id=checkpoint.query_id or "",
            begin=checkpoint.begin,
            planned=planned,
            done=checkpoint.last_done,
            start=checkpoint.end_of(planned - 1) if planned else None,
            end=None if planned is None else checkpoint.end_of(planned),
        )

    def _first_offsets(self, source: SourceSpec) -> SourceOffsets:
        from penstock.spark.source.broker_offsets import BrokerOffsets
        from penstock.spark.source.options import stream_options

        options = stream_options(starting_options_of(self._spec, source))
        with BrokerOffsets(options) as broker:
            return broker.resolve(options.starting, is_start=True)

    # --- batches

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
            if self._last is not None and self._last[0] == batch_id - 1:
                start = self._last[1]
            else:
                start = self._checkpoint.end_of(batch_id - 1)
        if start is None:
            raise ProgressError(f"the checkpoint has no offsets of batch {batch_id - 1}")
        self._last = batch_id, end
        return Batch(self._checkpoint.query_id or "", batch_id, start, end)

    def _apply(self, compiled: CompiledQuery, frame: "DataFrame", batch: Batch) -> None:
        if decide(self._stored, batch) is Decision.SKIP:
            if compiled.plan.stateful:
                # Running the plan writes the state, which Spark expects in the next batch.
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
            letters, written = self._dead_letters.read(self._query, batch)
            self._at("dead-letters")
            return letters

        result = self._sink.write(frame, batch, dead_letters)
        self._at("stored")
        self._stored = StoredProgress(batch.end, batch.query_id, batch.batch_id)
        result = replace(result, dead_letters=result.dead_letters + written)
        self._result = replace(
            self._result,
            batches=self._result.batches + 1,
            rows=self._result.rows + result.rows,
            dead_letters=self._result.dead_letters + result.dead_letters,
        )
        for listener in self._listeners:
            listener.stored(self.key, batch, result)

    # --- end

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def error(self) -> Exception | None:
        """Why the query failed; None if it runs, has finished or was stopped."""
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
        """The exit callback of a block. After a KeyboardInterrupt it cancels the current batch,
        which the next run reads again."""
        self.stop(is_patient=kind is not KeyboardInterrupt)

    def begin_no_batch(self) -> None:
        """Makes the current batch the last one."""
        self._stopping.set()

    def stop(self, *, is_patient: bool = True) -> None:
        """Stops the query, after the current batch unless `is_patient` is false."""
        self.begin_no_batch()
        query = self._query
        if query is None:
            return
        if is_patient:
            with self._busy:
                deadline = time.monotonic() + _TRIGGER_TIMEOUT_S
            # Spark's own commit follows that of the sink; without it the batch would run again.
            # Besides, Spark logs errors if it is interrupted while it prepares a batch; such a
            # batch ends with `_StoppedError`.
            while query.isActive and _is_trigger_active(query) and time.monotonic() < deadline:
                time.sleep(0.01)
        query.stop()

    def close(self) -> None:
        """Closes the sink and the listeners. Call it after the query has ended."""
        reports, self._reports = self._reports, None
        try:
            if reports is not None:
                if self._query is not None and not self._query.isActive:
                    reports.ended.wait(_REPORT_TIMEOUT_S)
                self._spark.streams.removeListener(reports)
        finally:
            self._latest_offsets.close()
            with suppress(PipelineError):
                self._dead_letters.close()
            self._sink.close()


def new_owner() -> str:
    """Returns a unique name for this driver: host, process id, a random part, the start time."""
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}:{started}"


def _is_trigger_active(query: "StreamingQuery") -> bool:
    """Whether the query does more than wait for the next trigger."""
    return bool(query.status["isTriggerActive"])


def location_of(spec: PipelineSpec, sink: SinkSpec) -> str:
    """Returns the directory of the query's checkpoint."""
    return f"{spec.checkpoint.rstrip('/')}/{spec.name}/{sink.name}"
