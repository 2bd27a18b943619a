"""Sinks and dead letters: whether they can take what their views give."""

import re
from collections.abc import Iterator, Sequence
from typing import get_args

from penstock.spark.check.part_check import is_topic
from penstock.spark.check.relations import Relation
from penstock.spark.check.shape import cannot_append, cannot_update, output_mode
from penstock.spark.check.topics import matching
from penstock.spark.check.views import Analysis
from penstock.spark.pipeline.model import (
    OutputMode,
    PipelineSpec,
    Problem,
    SinkSpec,
    SourceSpec,
)
from penstock.spark.pipeline.nearest import suggestion
from penstock.spark.sinks.registry import kind_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


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
        yield from kind_of(sink).check(sink, relation)
    yield from _dead_letters(spec)


def _choices(sink: SinkSpec) -> Iterator[Problem]:
    """What a file cannot say wrongly, and Python can."""
    choices: list[tuple[str, str | None, Sequence[str]]] = [
        ("output_mode", sink.output_mode, get_args(OutputMode)),
        *kind_of(sink).choices(sink),
    ]
    for key, value, allowed in choices:
        if value is not None and value not in allowed:
            message = f"{value!r} is not one of {', '.join(allowed)}"
            yield Problem(sink.line_of(key), f"sinks.{sink.name}.{key}", message)


def _view(sink: SinkSpec, analysis: Analysis) -> Iterator[Problem]:
    where = f"sinks.{sink.name}.from"
    line = sink.line_of("from")
    if not sink.view:
        return
    if sink.view not in analysis.views:
        message = f"there is no view {sink.view}{suggestion(sink.view, analysis.views)}"
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
    kind = kind_of(sink)
    if kind.update_refusal is not None and mode == "update":
        yield Problem(line, where, kind.update_refusal)
        return
    if mode == "update":
        why = cannot_update(relation)
        if why is not None:
            yield Problem(line, where, f"update is not possible: {why}. Use append")
    elif mode == "append":
        why = cannot_append(relation)
        if why is not None and not _told(spec, relation):
            advice = kind.append_advice(sink)
            yield Problem(line, where, f"append is not possible: {why}. {advice}")


def _told(spec: PipelineSpec, relation: Relation) -> bool:
    """Whether the missing watermark was a problem of its step already."""
    meant_so = {each.name for each in spec.steps if each.unbounded_state}
    return any(not each.bounded and each.step not in meant_so for each in relation.states)


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
    others = [each.name for each in spec.sinks if kind_of(each).dead_letters_with_rows != "table"]
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
