"""What would run, as text: the queries of a pipeline, what they read, keep and write."""

import textwrap
from collections.abc import Iterator, Mapping

from penstock.spark.check.relations import Relation, State, StateKind
from penstock.spark.check.shape import output_mode, stateful
from penstock.spark.check.views import Analysis, analyse
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
    """For people to read.

    `partitions`: how many each topic has, if the broker was asked. `progress`: how far each query
    is, by its key (`PipelineSpec.query`), if its sink was asked.
    """
    known = analysis or analyse(spec)
    lines = [*_head(spec)]
    for sink in spec.sinks:
        lines.append("")
        lines += _query(spec, sink, known, partitions or {}, (progress or {}).get(spec.query(sink)))
    return "\n".join(each.rstrip() for each in lines) + "\n"


def _head(spec: PipelineSpec) -> Iterator[str]:
    where = f" ({spec.file})" if spec.file else ""
    yield f"pipeline {spec.name}{where}"
    yield from _entry("broker", spec.bootstrap_servers)
    yield from _entry(
        "batches", f"every {spec.trigger}, of at most {spec.max_batch_records:,} records"
    )
    yield from _entry("lag", f"in the consumer group {spec.name}")
    yield from _entry("unreadable", _dead_letters(spec))


def _dead_letters(spec: PipelineSpec) -> str:
    dead = spec.dead_letters
    if dead is None:
        return "records stop the pipeline (no dead_letters)"
    where = f"topic {dead.topic}" if dead.topic is not None else f"table {dead.table}"
    limits = []
    if dead.max_count is not None:
        limits.append(f"{dead.max_count:,}")
    if dead.max_share is not None:
        limits.append(f"{dead.max_share:.4g} of the records")
    stop = f"; more than {' or '.join(limits)} of a batch stop the pipeline" if limits else ""
    return f"records go to {where}{stop}"


def _query(
    spec: PipelineSpec,
    sink: SinkSpec,
    analysis: Analysis,
    partitions: Mapping[str, int],
    progress: Progress | None,
) -> Iterator[str]:
    relation = analysis.view(sink.view)
    below = relation.sources
    yield f"query {spec.query(sink)}"
    for source in spec.sources:
        if source.name in below:
            stored = None if progress is None else progress.get(source.name)
            yield from _source(source, analysis.view(source.name), partitions, stored)
    for table in spec.tables:
        if table.name in below:
            yield from _table(table, analysis.view(table.name))
    for step in spec.steps:
        if step.name in below:
            yield from _step(step, analysis)
    yield from _entry("write", kind_of(sink).describe(sink))
    mode = output_mode(spec, sink, analysis=analysis)
    yield from _entry("mode", f"{mode or 'as the plan of Spark will tell'} ({_mode_words(mode)})")
    yield from _entry("state", _state_words(stateful(spec, sink, analysis=analysis)))
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
            f"{each} ({_many(partitions[each], 'partition')})" if each in partitions else each
            for each in source.topics
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
        f"{each.topic}-{each.partition} at {offset}"
        for each, offset in sorted(stored.offsets.items())
    ]
    shown = ", ".join(offsets[:8]) + (f" and {len(offsets) - 8} more" if len(offsets) > 8 else "")
    return f"goes on: {shown}"


def _table(table: TableSpec, relation: Relation) -> Iterator[str]:
    if table.path is not None:
        where = f"files {table.path}"
    else:
        where = f"table {table.table} in {without_password(table.database or '')}"
    yield from _entry("join", f"{table.name}: {where}, read anew in every batch")
    yield from _columns(relation)


def _step(step: StepSpec, analysis: Analysis) -> Iterator[str]:
    relation = analysis.view(step.name)
    if step.sql is not None:
        how = "SQL"
    elif step.function is not None:
        named = step.function if isinstance(step.function, str) else _name(step.function)
        how = f"function {named}"
    else:
        how = f"{step.source} without repeated {', '.join(step.deduplicate)}"
    yield from _entry("make", f"{step.name}: {how}")
    if step.sql is not None:
        for line in textwrap.dedent(step.sql).strip().splitlines():
            yield f"{'':16}| {line}"
    yield from _columns(relation)
    yield from _watermark(relation, step.watermark.delay if step.watermark else None)
    for state in relation.states:
        if state.step == step.name:
            yield from _entry("", f"state: {_state(state)}")


def _state(state: State) -> str:
    if state.kind is StateKind.LIMIT:
        return "how many rows have passed (LIMIT)"
    if state.kind is StateKind.JOIN:
        what = f"rows of both sides of the {', '.join(state.keys)} join"
    elif state.keys:
        what = f"{state.kind.value} by {', '.join(state.keys)}"
    else:
        return f"{state.kind.value} of all rows into one"
    until = "until the watermark has passed" if state.bounded else "for ever (unbounded_state)"
    return f"{what}, {until}"


def _columns(relation: Relation) -> Iterator[str]:
    named = [
        f"{each.name} {each.type}" if each.type is not None else each.name
        for each in relation.columns
        if each.name and not each.name.startswith("_")
    ]
    if relation.complete:
        yield from _entry("", f"columns: {', '.join(named)}")
    elif named:
        yield from _entry("", f"columns: {', '.join(named)}, and others that only Spark knows")
    else:
        yield from _entry("", "columns: known to Spark only")


def _watermark(relation: Relation, delay: str | None) -> Iterator[str]:
    if delay is not None:
        column = next((each.name for each in relation.columns if each.event_time), "?")
        yield from _entry("", f"watermark: {column}, rows may be {delay} late")


def _mode_words(mode: str | None) -> str:
    return {
        "append": "a row comes out once, when it is final",
        "update": "a row comes out each time that it changes",
    }.get(mode or "", "a Python function makes the view")


def _state_words(keeps: bool | None) -> str:
    if keeps is None:
        return "as the plan of Spark will tell (a Python function makes the view)"
    if keeps:
        return "is kept in the checkpoint: without it, only `rebuild` makes the results anew"
    return "none: a lost checkpoint does no harm, the sink knows how far it is"


def _guarantee(spec: PipelineSpec, sink: SinkSpec) -> str:
    kind = kind_of(sink)
    dead_letters = spec.dead_letters
    if dead_letters is None:
        place = None
    else:
        place = "topic" if dead_letters.topic is not None else "table"
    are_with_rows = place is not None and place == kind.dead_letters_with_rows
    guarantee = kind.guarantee(sink, ", dead letters" if are_with_rows else "")
    if place == "topic" and not are_with_rows:
        guarantee += "; dead letters exactly once in a transaction of their own, before the rows"
    return guarantee


def _entry(title: str, text: str) -> Iterator[str]:
    """A line with a title, and what does not fit below it."""
    lines = textwrap.wrap(text, _WIDTH - 14, break_long_words=False, break_on_hyphens=False)
    indent = "" if title else "  "
    for at, line in enumerate(lines or [""]):
        head = f"  {title}" if at == 0 else ""
        yield f"{head:<14}{indent}{line}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or function)
