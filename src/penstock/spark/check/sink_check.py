"""Checks of sinks and dead letters: whether they can store the rows of their views."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import get_args

from penstock.spark.check.query_shape import append_obstacle, output_mode, update_obstacle
from penstock.spark.check.relations import Relation
from penstock.spark.check.spec_check import destination_problem
from penstock.spark.check.topics import matching_topics
from penstock.spark.check.views import Analysis
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import (
    DEAD_LETTERS,
    REPLAY,
    DeadLetterSpec,
    OutputMode,
    PipelineSpec,
    Problem,
    SinkSpec,
    SourceSpec,
)
from penstock.spark.pipeline.nearest import suggestion
from penstock.spark.sinks.database.kind import DatabaseSinkSpec, database_kind_of
from penstock.spark.sinks.database.names import checked_table_name
from penstock.spark.sinks.registry import kind_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,98}")


def check_sinks(spec: PipelineSpec, analysis: Analysis) -> Iterator[Problem]:
    """Yields the problems of every sink, and of the dead letters."""
    names: set[str] = set()
    for sink in spec.sinks:
        if not _NAME.fullmatch(sink.name):
            # A dot would make `<pipeline>.<sink>` ambiguous, which is the key of the progress.
            message = (
                f"{sink.name!r} is not a name for a sink: use letters, digits, `_` and `-` only, "
                "at most 99"
            )
            yield sink.problem("", message)
        elif sink.name.lower() in (REPLAY, DEAD_LETTERS):
            yield sink.problem(
                "", f"the name {sink.name} is reserved for Penstock: rename the sink"
            )
        if sink.name.lower() in names:
            yield sink.problem("", f"there are two sinks {sink.name}: rename one of them")
        names.add(sink.name.lower())
        relation = analysis.view(sink.view)
        yield from _check_choices(sink)
        yield from _check_view(sink, analysis)
        yield from _check_repeated_columns(sink, relation)
        yield from _check_output_mode(spec, sink, analysis)
        yield from kind_of(sink).check(sink, relation)
    yield from _check_dead_letters(spec)


def _check_choices(sink: SinkSpec) -> Iterator[Problem]:
    """Checks values that a file's parser refuses, but that can be set in Python."""
    choices: list[tuple[str, str | None, Sequence[str]]] = [
        ("output_mode", sink.output_mode, get_args(OutputMode)),
        *kind_of(sink).choices(sink),
    ]
    for key, value, allowed in choices:
        if value is not None and value not in allowed:
            yield sink.problem(key, f"{value!r} is not one of {', '.join(allowed)}")


def _check_view(sink: SinkSpec, analysis: Analysis) -> Iterator[Problem]:
    if not sink.view:
        return
    if sink.view not in analysis.views:
        message = f"there is no view {sink.view}{suggestion(sink.view, analysis.views)}"
        yield sink.problem("from", message)
    elif analysis.view(sink.view).is_streaming is False:
        message = f"{sink.view} reads no topic, so it never gets new rows: use a view of a source"
        yield sink.problem("from", message)


def _check_repeated_columns(sink: SinkSpec, relation: Relation) -> Iterator[Problem]:
    names = [name.lower() for name in relation.names]
    for name in sorted({name for name in names if names.count(name) > 1}):
        message = f"{sink.view} has several columns {name}: give them different names (AS)"
        yield sink.problem("from", message)


def _check_output_mode(spec: PipelineSpec, sink: SinkSpec, analysis: Analysis) -> Iterator[Problem]:
    relation = analysis.view(sink.view)
    problem = partial(sink.problem, "output_mode")
    mode = output_mode(spec, sink, analysis=analysis)
    kind = kind_of(sink)
    if mode == "update" and kind.update_refusal is not None:
        yield problem(kind.update_refusal)
    elif mode == "update":
        obstacle = update_obstacle(relation)
        if obstacle is not None:
            yield problem(f"update is not possible: {obstacle}. Use append")
    elif mode == "append":
        obstacle = append_obstacle(relation)
        if obstacle is not None and not _has_reported_state(spec, relation):
            yield problem(f"append is not possible: {obstacle}. {kind.append_advice(sink)}")


def _has_reported_state(spec: PipelineSpec, relation: Relation) -> bool:
    """Returns whether the missing watermark is already a problem of its step."""
    unbounded_steps = {step.name for step in spec.steps if step.unbounded_state}
    return any(
        not state.is_bounded and state.step not in unbounded_steps for state in relation.states
    )


def _check_dead_letters(spec: PipelineSpec) -> Iterator[Problem]:
    dead_letters = spec.dead_letters
    if dead_letters is None:
        return
    problem = dead_letters.problem
    if (dead_letters.topic is None) == (dead_letters.table is None):
        message = "the destination is missing or ambiguous: set either topic or table"
        yield problem("", message)
    topic = dead_letters.topic
    if topic is not None:
        name_problem = destination_problem(topic)
        if name_problem is not None:
            yield problem("topic", name_problem)
        if any(_is_read_by(source, topic) for source in spec.sources):
            message = (
                f"{topic} is a source of this pipeline, which would read its own dead letters: "
                "use another topic"
            )
            yield problem("topic", message)
    other_sinks = [s.name for s in spec.sinks if kind_of(s).dead_letters_with_rows != "table"]
    if dead_letters.table is not None and other_sinks:
        message = (
            "a table can only hold the dead letters of sinks in a database, and "
            f"{other_sinks[0]} is not one: use topic"
        )
        yield problem("table", message)
    if dead_letters.table is not None:
        yield from _check_dead_letter_table(spec, dead_letters, dead_letters.table)
    if dead_letters.max_count is not None and dead_letters.max_count < 0:
        yield problem("max_count", f"{dead_letters.max_count} is negative: it must be 0 or more")
    if dead_letters.max_share is not None and not 0 <= dead_letters.max_share <= 1:
        message = (
            f"{dead_letters.max_share} is not a share: it must be from 0 to 1, as in 0.01 for one "
            "in a hundred"
        )
        yield problem("max_share", message)


def _check_dead_letter_table(
    spec: PipelineSpec, dead_letters: DeadLetterSpec, table: str
) -> Iterator[Problem]:
    for sink in spec.sinks:
        if not isinstance(sink, DatabaseSinkSpec):
            continue
        kind = database_kind_of(sink.database)
        if kind is not None:
            try:
                checked_table_name(kind, table)
            except PipelineError as error:
                yield dead_letters.problem("table", str(error))
        if sink.table.lower() == table.lower():
            message = f"{table} is the table of the sink {sink.name}: use another table"
            yield dead_letters.problem("table", message)


def _is_read_by(source: SourceSpec, topic: str) -> bool:
    try:
        return topic in source.topics or bool(
            source.pattern and matching_topics(source.pattern, [topic])
        )
    except re.error:
        return False
