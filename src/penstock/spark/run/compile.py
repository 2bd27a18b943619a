"""Compiles a pipeline to DataFrames: the sources, tables and steps that feed one sink."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.check.query_shape import output_mode
from penstock.spark.decode.datatypes import quote_name
from penstock.spark.errors import PipelineError, SparkPartError
from penstock.spark.pipeline.model import (
    OutputMode,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StepSpec,
    Watermark,
)
from penstock.spark.run.offset_log import number_repeated
from penstock.spark.run.plan_facts import facts_of, refused_operation
from penstock.spark.run.record_counts import count_records
from penstock.spark.run.resume import QueryPlan
from penstock.spark.run.source_options import stream_options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.progress import SourceOffsets


@dataclass(frozen=True)
class CompiledQuery:
    """The DataFrame of a query, ready to be started."""

    frame: "DataFrame"
    plan: QueryPlan
    output_mode: OutputMode


def compile_query(
    spark: "SparkSession",
    spec: PipelineSpec,
    sink: SinkSpec,
    start: "Callable[[SourceSpec], SourceOffsets]",
) -> CompiledQuery:
    """Returns the query that feeds a sink; creates its views in `spark`, a session of its own.

    `start` returns the offsets at which a source starts without a checkpoint. It is called for each
    source that the query may read.
    """
    needed = views_needed(spec, sink.view)
    sources = [source for source in spec.sources if source.name in needed]
    views: dict[str, DataFrame] = {}

    def define(name: str, frame: "DataFrame", watermark: Watermark | None = None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(quote_name(watermark.column), watermark.delay)
        frame.createOrReplaceTempView(name)
        views[name] = frame

    for source in sources:
        limit = max(1, spec.max_batch_records // len(sources))
        define(source.name, _stream(spark, spec, source, start(source), limit), source.watermark)
    for table in spec.tables:
        if table.name in needed:
            from penstock.spark.run.static_source import static_frame

            define(table.name, static_frame(spark, table))
    directory = Path(spec.file).absolute().parent if spec.file else Path.cwd()
    for step in spec.steps:
        if step.name in needed:
            define(step.name, _step(spark, step, views, directory), step.watermark)
    if sink.view not in views:
        raise PipelineError(f"sink {sink.name}: there is no view {sink.view}")
    frame = views[sink.view]
    if not frame.isStreaming:
        raise PipelineError(
            f"sink {sink.name}: view {sink.view} reads no topic, so it never gets new rows"
        )
    facts = facts_of(frame)
    return CompiledQuery(
        frame=frame,
        plan=QueryPlan(
            sources=tuple(number_repeated(facts.sources)),
            stateful=facts.stateful,
            patterns=frozenset(source.name for source in sources if source.pattern is not None),
        ),
        output_mode=output_mode(spec, sink) or ("update" if facts.updates else "append"),
    )


def views_needed(spec: PipelineSpec, view: str) -> frozenset[str]:
    """Returns the view and all views that it may depend on; rather too many than too few."""
    steps = {step.name: index for index, step in enumerate(spec.steps)}
    inputs = [*(source.name for source in spec.sources), *(table.name for table in spec.tables)]
    needed = {view}
    # Steps read only earlier views, so one pass from the last step to the first is enough.
    for step in reversed(spec.steps):
        if step.name in needed:
            earlier = [
                *inputs,
                *(earlier_step.name for earlier_step in spec.steps[: steps[step.name]]),
            ]
            needed.update(name for name in earlier if _may_read(step, name))
    return frozenset(needed)


def _may_read(step: StepSpec, view: str) -> bool:
    if step.sql is not None:
        return re.search(rf"(?<!\w){re.escape(view)}(?!\w)", step.sql, re.IGNORECASE) is not None
    return step.function is not None or step.source == view


def _stream(
    spark: "SparkSession",
    spec: PipelineSpec,
    source: SourceSpec,
    start: "SourceOffsets",
    limit: int,
) -> "DataFrame":
    """Returns the readable rows of a source; Spark counts the others."""
    from pyspark.sql import functions as sql

    from penstock.spark.decode.decode import decode

    options = stream_options_of(spec, source, start, limit)
    raw = spark.readStream.format("penstock").options(**options).load()
    counted = count_records(decode(raw, source), source.name)
    return counted.where(sql.col("_error").isNull()).drop("_error")


def _step(
    spark: "SparkSession", step: StepSpec, views: "Mapping[str, DataFrame]", directory: Path
) -> "DataFrame":
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import DataFrame

    from penstock.spark.run.step_functions import function_of

    line = step.sql_line or step.line
    location = f" (line {line})" if line else ""
    try:
        if step.sql is not None:
            operation = refused_operation(spark, step.sql)
            if operation is not None:
                raise PipelineError(
                    f"step {step.name}{location}: {operation} is not possible: a step only "
                    "queries, and rows are stored by `sinks`"
                )
            return spark.sql(step.sql)
        if step.deduplicate:
            source = views[step.source or ""]
            columns = list(step.deduplicate)
            if step.unbounded_state:
                return source.dropDuplicates(columns)
            return source.dropDuplicatesWithinWatermark(columns)
        result: object = function_of(step, directory)(dict(views))
    except SparkPartError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        if not isinstance(error, AnalysisException | ParseException):
            reason = f"{type(error).__name__}: {reason}"
        raise PipelineError(f"step {step.name}{location}: {reason}") from error
    if not isinstance(result, DataFrame):
        raise PipelineError(
            f"step {step.name}: its function returned {type(result).__name__} instead of a "
            "DataFrame"
        )
    return result
