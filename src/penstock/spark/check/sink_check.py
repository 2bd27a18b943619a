"""Sinks and dead letters: whether they can take what their views give."""

import re
from collections.abc import Iterator
from typing import get_args

from penstock.spark.check.part_check import is_topic
from penstock.spark.check.relations import Finding, Relation
from penstock.spark.check.scope import Read, Scope, columns_in
from penstock.spark.check.shape import cannot_append, cannot_update, output_mode
from penstock.spark.check.sql_parse import may_be_misread, parse_condition
from penstock.spark.check.topics import matching
from penstock.spark.check.views import Analysis
from penstock.spark.pipeline.model import (
    DatabaseSinkSpec,
    Mode,
    OutputMode,
    ParquetSinkSpec,
    PipelineSpec,
    Problem,
    SinkSpec,
    SinkWriting,
    SourceSpec,
    TopicSinkSpec,
)
from penstock.spark.pipeline.nearest import meant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9]*)(\+[A-Za-z0-9_]+)?://")


def check_sinks(spec: PipelineSpec, analysis: Analysis) -> Iterator[Problem]:
    """Every sink, and the dead letters."""
    seen: set[str] = set()
    for sink in spec.sinks:
        where = f"sinks.{sink.name}"
        if not _NAME.fullmatch(sink.name):
            message = f"{sink.name!r} is not a name: letters, digits, `_`, `-` and `.` only"
            yield Problem(sink.line, where, message)
        if sink.name.lower() in seen:
            yield Problem(sink.line, where, f"there are two sinks {sink.name}: rename one")
        seen.add(sink.name.lower())
        yield from _choices(sink)
        yield from _view(sink, analysis)
        relation = analysis.view(sink.view)
        yield from _repeated_columns(sink, relation)
        yield from _mode(spec, sink, analysis)
        if isinstance(sink, DatabaseSinkSpec):
            yield from _database(sink, relation)
        elif isinstance(sink, TopicSinkSpec):
            yield from _topic(sink, relation)
        else:
            yield from _columns(sink, "partition_by", sink.partition_by, relation)
    yield from _dead_letters(spec)


def _choices(sink: SinkSpec) -> Iterator[Problem]:
    """What a file cannot say wrongly, and Python can."""
    given: list[tuple[str, str | None, tuple[str, ...]]] = [
        ("output_mode", sink.output_mode, get_args(OutputMode))
    ]
    if isinstance(sink, DatabaseSinkSpec):
        given += [
            ("mode", sink.mode, get_args(Mode)),
            ("writing", sink.writing, get_args(SinkWriting)),
        ]
    for key, value, allowed in given:
        if value is not None and value not in allowed:
            message = f"{value!r} is not one of {', '.join(allowed)}"
            yield Problem(sink.line_of(key), f"sinks.{sink.name}.{key}", message)


def _view(sink: SinkSpec, analysis: Analysis) -> Iterator[Problem]:
    where = f"sinks.{sink.name}.from"
    line = sink.line_of("from")
    if not sink.view:
        return
    if sink.view not in analysis.views:
        message = f"there is no view {sink.view}{meant(sink.view, analysis.views)}"
        yield Problem(line, where, message)
    elif analysis.view(sink.view).streaming is False:
        yield Problem(line, where, f"{sink.view} reads no topic, so it never gets new rows")


def _repeated_columns(sink: SinkSpec, relation: Relation) -> Iterator[Problem]:
    names = [each.lower() for each in relation.names]
    for name in sorted({each for each in names if names.count(each) > 1}):
        message = f"{sink.view} has several columns {name}: give them different names (AS)"
        yield Problem(sink.line_of("from"), f"sinks.{sink.name}.from", message)


def _mode(spec: PipelineSpec, sink: SinkSpec, analysis: Analysis) -> Iterator[Problem]:
    relation = analysis.view(sink.view)
    where = f"sinks.{sink.name}.output_mode"
    line = sink.line_of("output_mode")
    mode = output_mode(spec, sink, analysis=analysis)
    if isinstance(sink, ParquetSinkSpec) and mode == "update":
        yield Problem(line, where, "rows in Parquet files cannot be changed: append only")
        return
    if mode == "update":
        why = cannot_update(relation)
        if why is not None:
            yield Problem(line, where, f"update is not possible: {why}. Use append")
    elif mode == "append":
        why = cannot_append(relation)
        if why is not None and not _told(spec, relation):
            advice = (
                "Use another sink, or a watermark"
                if isinstance(sink, ParquetSinkSpec)
                else "Say `output_mode: update`, to get a row each time that it changes"
            )
            if isinstance(sink, DatabaseSinkSpec) and sink.mode == "append":
                advice += ", with `mode: upsert`"
            yield Problem(line, where, f"append is not possible: {why}. {advice}")


def _told(spec: PipelineSpec, relation: Relation) -> bool:
    """Whether the missing watermark was a problem of its step already."""
    meant_so = {each.name for each in spec.steps if each.unbounded_state}
    return any(not each.bounded and each.step not in meant_so for each in relation.states)


def _database(sink: DatabaseSinkSpec, relation: Relation) -> Iterator[Problem]:
    where = f"sinks.{sink.name}"

    def problem(key: str, message: str) -> Problem:
        return Problem(sink.line_of(key), f"{where}.{key}", message)

    address = _ADDRESS.match(sink.database)
    if address is None:
        message = (
            f"{sink.database!r} is not the address of a database, such as sqlite:///results.db or "
            "postgresql://user:password@host/database"
        )
        yield problem("database", message)
    elif address[1].lower() == "sqlite" and sink.writing == "staged":
        yield problem("writing", "SQLite is written by the driver only: leave writing out")
    if sink.mode == "upsert" and not sink.key:
        yield problem("key", "upsert needs key: the columns by which a row is found again")
    if sink.mode == "append":
        for key, given in (("order_by", sink.order_by), ("delete_when", sink.delete_when)):
            if given:
                yield problem(key, f"{key} goes with `mode: upsert` only")
    yield from _columns(sink, "key", sink.key, relation)
    yield from _columns(sink, "order_by", sink.order_by, relation)
    wrong = [] if sink.delete_when is None else list(_condition(sink.delete_when, relation))
    names = {each.lower() for each in relation.names}
    if not (wrong and may_be_misread(f"SELECT * FROM rows WHERE {sink.delete_when}", names)):
        yield from (problem("delete_when", message) for message in wrong)


def _condition(sql: str, relation: Relation) -> Iterator[str]:
    found = parse_condition(sql)
    if isinstance(found, Finding):
        yield found.message
    elif found is not None:
        scope = Scope([Read("", relation)])
        for each in columns_in(found):
            column = scope.find(each)
            if isinstance(column, Finding):
                yield column.message


def _topic(sink: TopicSinkSpec, relation: Relation) -> Iterator[Problem]:
    where = f"sinks.{sink.name}"
    if sink.topic is None:
        if relation.complete and not relation.find("topic"):
            message = f"say the topic: {sink.view} has no column topic to name it row by row"
            yield Problem(sink.line_of("topic"), f"{where}.topic", message)
    elif not is_topic(sink.topic):
        message = f"{sink.topic!r} cannot be a topic: letters, digits, `.`, `_` and `-` only"
        yield Problem(sink.line_of("topic"), f"{where}.topic", message)
    yield from _columns(sink, "key", sink.key, relation)
    if relation.complete and not relation.columns:
        message = f"{sink.view} has no columns to write"
        yield Problem(sink.line_of("from"), f"{where}.from", message)


def _columns(
    sink: SinkSpec, key: str, names: tuple[str, ...], relation: Relation
) -> Iterator[Problem]:
    if not relation.complete:
        return
    for name in names:
        if not relation.find(name):
            message = f"{sink.view} has no column {name}{meant(name, relation.names)}"
            line = sink.line_of(f"{key}.{name}", key)
            yield Problem(line, f"sinks.{sink.name}.{key}", message)


def _reads(source: SourceSpec, topic: str) -> bool:
    try:
        return topic in source.topics or bool(source.pattern and matching(source.pattern, [topic]))
    except re.error:
        return False


def _dead_letters(spec: PipelineSpec) -> Iterator[Problem]:
    dead = spec.dead_letters
    if dead is None:
        return
    where = "dead_letters"
    if (dead.topic is None) == (dead.table is None):
        yield Problem(dead.line, where, "say where they go: topic or table, one of them")
    if dead.topic is not None and not is_topic(dead.topic):
        message = f"{dead.topic!r} cannot be a topic: letters, digits, `.`, `_` and `-` only"
        yield Problem(dead.line_of("topic"), f"{where}.topic", message)
    if dead.topic is not None and any(_reads(each, dead.topic) for each in spec.sources):
        message = f"{dead.topic} is a source of this pipeline: it would read its dead letters again"
        yield Problem(dead.line_of("topic"), f"{where}.topic", message)
    others = [each.name for each in spec.sinks if not isinstance(each, DatabaseSinkSpec)]
    if dead.table is not None and others:
        message = (
            f"a table can only take the dead letters of sinks in a database, and {others[0]} is "
            "none: use topic"
        )
        yield Problem(dead.line_of("table"), f"{where}.table", message)
    if dead.max_count is not None and dead.max_count < 0:
        yield Problem(dead.line_of("max_count"), f"{where}.max_count", "must be 0 or more")
    if dead.max_share is not None and not 0 <= dead.max_share <= 1:
        message = f"{dead.max_share} is not a share: from 0 to 1, as in 0.01 for one in a hundred"
        yield Problem(dead.line_of("max_share"), f"{where}.max_share", message)
