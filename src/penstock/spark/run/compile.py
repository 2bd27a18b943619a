"""From a pipeline as data to Spark's frames: what one query reads, does, and gives to its sink."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.check.query_shape import output_mode
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
from penstock.spark.run.plan_facts import facts_of
from penstock.spark.run.record_counts import count_records
from penstock.spark.run.resume import QueryPlan
from penstock.spark.run.source_options import stream_options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.progress import SourceOffsets


@dataclass(frozen=True)
class CompiledQuery:
    """A query, ready to be started."""

    frame: "DataFrame"
    needs: QueryPlan
    output_mode: OutputMode

    @property
    def sources(self) -> tuple[str, ...]:
        """In the order of Spark's offset log."""
        return self.needs.sources

    @property
    def stateful(self) -> bool:
        return self.needs.stateful


def compile_query(
    spark: "SparkSession",
    spec: PipelineSpec,
    sink: SinkSpec,
    start: "Callable[[SourceSpec], SourceOffsets]",
) -> CompiledQuery:
    """The query that feeds a sink, in a session of its own, whose views it makes.

    `start` says where a source begins if there is no checkpoint; it is asked for sources that the
    query may need.
    """
    wanted = views_needed(spec, sink.view)
    sources = [source for source in spec.sources if source.name in wanted]
    views: dict[str, DataFrame] = {}

    def define(name: str, frame: "DataFrame", watermark: Watermark | None = None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frame.createOrReplaceTempView(name)
        views[name] = frame

    for source in sources:
        limit = max(1, spec.max_batch_records // len(sources))
        define(source.name, _stream(spark, spec, source, start(source), limit), source.watermark)
    for table in spec.tables:
        if table.name in wanted:
            from penstock.spark.run.static_source import static_frame

            define(table.name, static_frame(spark, table))
    folder = Path(spec.file).absolute().parent if spec.file else Path.cwd()
    for step in spec.steps:
        if step.name in wanted:
            define(step.name, _step(spark, step, views, folder), step.watermark)
    if sink.view not in views:
        raise PipelineError(f"sink {sink.name}: there is no view {sink.view}")
    frame = views[sink.view]
    if not frame.isStreaming:
        raise PipelineError(
            f"sink {sink.name}: view {sink.view} reads no topic. A pipeline copies what arrives"
        )
    facts = facts_of(frame)
    return CompiledQuery(
        frame=frame,
        needs=QueryPlan(
            sources=tuple(number_repeated(facts.sources)),
            stateful=facts.stateful,
            patterns=frozenset(source.name for source in sources if source.pattern is not None),
        ),
        output_mode=output_mode(spec, sink) or ("update" if facts.updates else "append"),
    )


def views_needed(spec: PipelineSpec, view: str) -> frozenset[str]:
    """The view and whatever may be read to make it, by name; rather too many than too few."""
    steps = {each.name: index for index, each in enumerate(spec.steps)}
    given = [*(source.name for source in spec.sources), *(table.name for table in spec.tables)]
    found = {view}
    # Steps read earlier ones only, so one look at each, from the last, is enough.
    for step in reversed(spec.steps):
        if step.name in found:
            earlier = [*given, *(each.name for each in spec.steps[: steps[step.name]])]
            found.update(each for each in earlier if _may_read(step, each))
    return frozenset(found)


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
    """The rows of a source that can be read; Spark counts the others."""
    from pyspark.sql import functions as sql

    from penstock.spark.decode.decode import decode

    options = stream_options_of(spec, source, start, limit)
    raw = spark.readStream.format("penstock").options(**options).load()
    counted = count_records(decode(raw, source), source.name)
    return counted.where(sql.col("_error").isNull()).drop("_error")


def _step(
    spark: "SparkSession", step: StepSpec, views: "Mapping[str, DataFrame]", folder: Path
) -> "DataFrame":
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import DataFrame

    from penstock.spark.run.step_functions import function_of

    try:
        if step.sql is not None:
            return spark.sql(step.sql)
        if step.deduplicate:
            read = views[step.source or ""]
            columns = list(step.deduplicate)
            if step.unbounded_state:
                return read.dropDuplicates(columns)
            return read.dropDuplicatesWithinWatermark(columns)
        made: object = function_of(step, folder)(dict(views))
    except SparkPartError:
        raise
    except Exception as error:
        place = f" (line {step.sql_line or step.line})" if step.sql_line or step.line else ""
        said = (str(error).splitlines() or [""])[0]
        if not isinstance(error, AnalysisException | ParseException):
            said = f"{type(error).__name__}: {said}"
        raise PipelineError(f"step {step.name}{place}: {said}") from error
    if not isinstance(made, DataFrame):
        raise PipelineError(
            f"step {step.name}: its function gave {type(made).__name__} instead of a DataFrame"
        )
    return made
