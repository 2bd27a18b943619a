"""`plan`: the queries of a pipeline as text, with what they read, keep and write."""

import textwrap
from collections.abc import Iterator, Mapping

from penstock.spark.check.query_shape import is_stateful, output_mode
from penstock.spark.check.relations import Relation, State, StateKind
from penstock.spark.check.views import Analysis, analyze
from penstock.spark.database_url import without_password
from penstock.spark.pipeline.model import (
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
)
from penstock.spark.progress import Progress, SourceOffsets
from penstock.spark.sinks.registry import kind_of

_WIDTH = 100


def plan(
    spec: PipelineSpec,
    *,
    partitions: Mapping[str, int] | None = None,
    progress: Mapping[str, Progress] | None = None,
    analysis: Analysis | None = None,
) -> str:
    """Returns a description of what would run, for people to read.

    `partitions` is the number of partitions of each topic, and `progress` the progress of each
    query by its key (`PipelineSpec.query`), as far as the caller knows them.
    """
    analysis = analysis or analyze(spec)
    lines = [*_describe_pipeline(spec)]
    for sink in spec.sinks:
        query_progress = (progress or {}).get(spec.query(sink))
        lines += ["", *_describe_query(spec, sink, analysis, partitions or {}, query_progress)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _describe_pipeline(spec: PipelineSpec) -> Iterator[str]:
    where = f" ({spec.file})" if spec.file else ""
    yield f"pipeline {spec.name}{where}"
    yield from _entry("broker", spec.bootstrap_servers)
    yield from _entry(
        "batches", f"every {spec.trigger}, of at most {spec.max_batch_records:,} records"
    )
    yield from _entry("lag", f"in the consumer group {spec.name}")
    yield from _entry("unreadable", _dead_letters(spec))


def _dead_letters(spec: PipelineSpec) -> str:
    dead_letters = spec.dead_letters
    if dead_letters is None:
        return "records stop the pipeline (no dead_letters)"
    where = (
        f"topic {dead_letters.topic}"
        if dead_letters.topic is not None
        else f"table {dead_letters.table}"
    )
    limits = []
    if dead_letters.max_count is not None:
        limits.append(f"{dead_letters.max_count:,}")
    if dead_letters.max_share is not None:
        limits.append(f"{dead_letters.max_share:.4g} of the records")
    stop = f"; more than {' or '.join(limits)} of a batch stop the pipeline" if limits else ""
    return f"records go to {where}{stop}"


def _describe_query(
    spec: PipelineSpec,
    sink: SinkSpec,
    analysis: Analysis,
    partitions: Mapping[str, int],
    progress: Progress | None,
) -> Iterator[str]:
    relation = analysis.view(sink.view)
    yield f"query {spec.query(sink)}"
    for source in spec.sources:
        if source.name in relation.sources:
            stored = None if progress is None else progress.get(source.name)
            yield from _source(source, analysis.view(source.name), partitions, stored)
    for table in spec.tables:
        if table.name in relation.sources:
            yield from _table(table, analysis.view(table.name))
    for step in spec.steps:
        if step.name in relation.sources:
            yield from _step(step, analysis)
    yield from _entry("write", kind_of(sink).describe(sink))
    mode = output_mode(spec, sink, analysis=analysis)
    yield from _entry("mode", f"{mode or 'decided by the plan of Spark'} ({_describe_mode(mode)})")
    yield from _entry("state", _describe_state(is_stateful(spec, sink, analysis=analysis)))
    yield from _entry("checkpoint", f"{spec.checkpoint.rstrip('/')}/{spec.name}/{sink.name}")
    yield from _entry("guarantee", _guarantee(spec, sink))


def _source(
    source: SourceSpec,
    relation: Relation,
    partitions: Mapping[str, int],
    stored: SourceOffsets | None,
) -> Iterator[str]:
    if source.pattern is not None:
        what = f"topics that match {source.pattern}"
    else:
        what = "topic " + ", ".join(
            f"{topic} ({_count(partitions[topic], 'partition')})" if topic in partitions else topic
            for topic in source.topics
        )
    yield from _entry("read", f"{source.name}: {what}, {source.format}")
    yield from _entry("", _start(source, stored))
    yield from _columns(relation)
    if source.required:
        yield from _entry("", f"required: {', '.join(source.required)}")
    yield from _watermark(relation, source.watermark.delay if source.watermark else None)


def _start(source: SourceSpec, stored: SourceOffsets | None) -> str:
    if stored is None:
        return f"from {source.starting}, unless it has run before"
    offsets = [
        f"{partition.topic}-{partition.partition} at {offset}"
        for partition, offset in sorted(stored.offsets.items())
    ]
    shown = ", ".join(offsets[:8]) + (f" and {len(offsets) - 8} more" if len(offsets) > 8 else "")
    return f"continues: {shown}"


def _table(table: TableSpec, relation: Relation) -> Iterator[str]:
    if table.path is not None:
        where = f"files {table.path}"
    else:
        where = f"table {table.table} in {without_password(table.database or '')}"
    yield from _entry("join", f"{table.name}: {where}, read again in every batch")
    yield from _columns(relation)


def _step(step: StepSpec, analysis: Analysis) -> Iterator[str]:
    relation = analysis.view(step.name)
    if step.sql is not None:
        method = "SQL"
    elif step.function is not None:
        method = f"function {_function_name(step.function)}"
    else:
        method = f"{step.source} without repeated {', '.join(step.deduplicate)}"
    yield from _entry("make", f"{step.name}: {method}")
    if step.sql is not None:
        for line in textwrap.dedent(step.sql).strip().splitlines():
            yield f"{'':16}| {line}"
    yield from _columns(relation)
    yield from _watermark(relation, step.watermark.delay if step.watermark else None)
    for state in relation.states:
        if state.step == step.name:
            yield from _entry("", f"state: {_state_text(state)}")


def _state_text(state: State) -> str:
    if state.kind is StateKind.LIMIT:
        return "how many rows have passed (LIMIT)"
    if state.kind is StateKind.JOIN:
        what = f"rows of both sides of the {', '.join(state.keys)} join"
    elif state.keys:
        what = f"{state.kind.value} by {', '.join(state.keys)}"
    else:
        return f"{state.kind.value} of all rows into one"
    until = "until the watermark has passed" if state.is_bounded else "forever (unbounded_state)"
    return f"{what}, {until}"


def _columns(relation: Relation) -> Iterator[str]:
    columns = [
        f"{column.name} {column.type}" if column.type is not None else column.name
        for column in relation.columns
        if column.name and not column.name.startswith("_")
    ]
    if relation.is_complete:
        yield from _entry("", f"columns: {', '.join(columns)}")
    elif columns:
        yield from _entry("", f"columns: {', '.join(columns)}, and others that only Spark knows")
    else:
        yield from _entry("", "columns: known to Spark only")


def _watermark(relation: Relation, delay: str | None) -> Iterator[str]:
    if delay is not None:
        column = next((column.name for column in relation.columns if column.is_event_time), "?")
        yield from _entry("", f"watermark: {column}, rows may be {delay} late")


def _describe_mode(mode: str | None) -> str:
    return {
        "append": "a row comes out once, when it is final",
        "update": "a row comes out each time that it changes",
    }.get(mode or "", "a Python function makes the view")


def _describe_state(has_state: bool | None) -> str:
    if has_state is None:
        return "decided by the plan of Spark (a Python function makes the view)"
    if has_state:
        return "is kept in the checkpoint: if it is lost, only `rebuild` can recreate the results"
    return "none: a lost checkpoint does no harm, because the sink stores the progress"


def _guarantee(spec: PipelineSpec, sink: SinkSpec) -> str:
    kind = kind_of(sink)
    dead_letters = spec.dead_letters
    if dead_letters is None:
        destination = None
    else:
        destination = "topic" if dead_letters.topic is not None else "table"
    are_with_rows = destination is not None and destination == kind.dead_letters_with_rows
    guarantee = kind.guarantee(sink, ", dead letters" if are_with_rows else "")
    if destination == "topic" and not are_with_rows:
        guarantee += "; dead letters exactly once in a transaction of their own, before the rows"
    return guarantee


def _entry(title: str, text: str) -> Iterator[str]:
    """Yields a line with a title, and below it the rest of a text that is too long."""
    lines = textwrap.wrap(text, _WIDTH - 14, break_long_words=False, break_on_hyphens=False)
    indent = "" if title else "  "
    for number, line in enumerate(lines or [""]):
        head = f"  {title}" if number == 0 else ""
        yield f"{head:<14}{indent}{line}"


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _function_name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or function)
