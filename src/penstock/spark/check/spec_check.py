"""Checks of the parts of a pipeline one by one: its settings, names, sources, tables and steps."""

import re
from collections.abc import Iterator

from penstock.core.errors import KafkaError
from penstock.spark.check.durations import parse_duration
from penstock.spark.check.step_check import check_function
from penstock.spark.check.views import source_fields
from penstock.spark.decode.fields import misplaced_keys
from penstock.spark.decode.formats.registry import FORMATS
from penstock.spark.errors import PipelineError, SparkPartError
from penstock.spark.pipeline.model import (
    NamedPart,
    PipelineSpec,
    Problem,
    SourceSpec,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.pipeline.nearest import suggestion
from penstock.spark.sinks.topic.ledger import check_destination

_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]*://)?(?:\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):(\d+)")


def check_spec(spec: PipelineSpec) -> Iterator[Problem]:
    """Yields all problems except those of columns, queries, sinks, and of a broker's topics."""
    yield from _check_settings(spec)
    yield from _check_producer_settings(spec)
    yield from _check_names(spec)
    for source in spec.sources:
        yield from _check_source(spec, source)
    for table in spec.tables:
        yield from _check_table(table)
    for step in spec.steps:
        yield from _check_step(spec, step)


def topic_name_problem(topic: str) -> str | None:
    """Returns why a topic cannot have this name, or None."""
    if _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return None
    return f"{topic!r} cannot be a topic: use letters, digits, `.`, `_` and `-` only"


def destination_problem(topic: str) -> str | None:
    """Returns why records cannot be written to a topic of this name, or None."""
    try:
        check_destination(topic)
    except PipelineError as error:
        return str(error)
    return topic_name_problem(topic)


def _check_settings(spec: PipelineSpec) -> Iterator[Problem]:
    problem = spec.problem
    if not _NAME.fullmatch(spec.name) or len(spec.name) > 100:
        message = (
            f"{spec.name!r} is not a name for a pipeline: use letters, digits, `_`, `-` and `.` "
            "only, at most 100"
        )
        yield problem("name", message)
    for server in spec.bootstrap_servers.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[1]) < 65536:
            message = f"{server.strip()!r} is not an address such as localhost:9092"
            yield problem("bootstrap_servers", message)
    try:
        parse_duration(spec.trigger)
    except ValueError as error:
        yield problem("trigger", str(error))
    if spec.max_batch_records < 1:
        message = f"{spec.max_batch_records} is too small: a batch has at least one record"
        yield problem("max_batch_records", message)
    if "bootstrap.servers" in spec.kafka:
        yield problem("kafka", "bootstrap.servers is set by bootstrap_servers: leave it out here")
    for name in spec.spark:
        if not name.startswith("spark."):
            yield problem("spark", f"{name} is not a setting of Spark: they begin with `spark.`")
    if not spec.sources:
        yield problem("sources", "there are none: a pipeline reads at least one topic")
    if not spec.sinks:
        yield problem("sinks", "there are none: without a sink nothing runs")


def _check_producer_settings(spec: PipelineSpec) -> Iterator[Problem]:
    """Checks the settings that only producers have; sources check all others."""
    from penstock.client.settings import ProducerOptions, resolve
    from penstock.spark.run.source_options import producer_options_of

    options = producer_options_of(spec)
    try:
        if options:
            resolve(ProducerOptions, {**options, "bootstrap_servers": spec.bootstrap_servers})
    except KafkaError as error:
        yield spec.problem("kafka", error.message)


def _check_names(spec: PipelineSpec) -> Iterator[Problem]:
    """Checks that names of views are unique; like Spark, it ignores case."""
    first_parts: dict[str, NamedPart] = {}
    for part in (*spec.sources, *spec.tables, *spec.steps):
        if not _VIEW.fullmatch(part.name):
            message = (
                f"{part.name!r} is not a name that SQL can use: use letters, digits and `_` only, "
                "and no digit first"
            )
            yield part.problem("", message)
        first_part = first_parts.setdefault(part.name.lower(), part)
        if first_part is not part:
            other = first_part.where
            message = f"the name {part.name} is already used by {other}: rename one of them"
            yield part.problem("", message)


def _check_source(spec: PipelineSpec, source: SourceSpec) -> Iterator[Problem]:
    if bool(source.topics) == (source.pattern is not None):
        message = "the topics are missing or ambiguous: set either topic (or topics) or pattern"
        yield source.problem("", message)
        return
    for topic in source.topics:
        name_problem = topic_name_problem(topic)
        if name_problem is not None:
            yield source.topic_problem(topic, name_problem)
    if source.format not in FORMATS:
        yield source.problem("format", f"{source.format!r} is not one of {', '.join(FORMATS)}")
        return
    for key, message in misplaced_keys(source).items():
        yield source.problem(key, message)
    yield from _check_delay(source.watermark, source.where)
    yield from _check_required(source)
    yield from _check_options(spec, source)


def _check_delay(watermark: Watermark | None, where: str) -> Iterator[Problem]:
    if watermark is not None:
        try:
            parse_duration(watermark.delay)
        except ValueError as error:
            yield Problem(watermark.line_of("delay"), f"{where}.watermark.delay", str(error))


def _check_required(source: SourceSpec) -> Iterator[Problem]:
    try:
        names = [field.name for field in source_fields(source)]
    except (SparkPartError, OSError, ImportError):
        return
    for name in source.required:
        if name not in names:
            message = f"the required field {name} is not in the schema{suggestion(name, names)}"
            yield source.problem("required", message, name)


def _check_options(spec: PipelineSpec, source: SourceSpec) -> Iterator[Problem]:
    from penstock.spark.decode.options import format_options
    from penstock.spark.run.source_options import starting_options_of
    from penstock.spark.source.options import stream_options

    try:
        format_options(source)
        stream_options(starting_options_of(spec, source))
    except KafkaError as error:
        yield spec.problem("kafka", error.message)
    except (SparkPartError, ValueError) as error:
        message = str(error).removeprefix(f"source {source.name}: ")
        keys = {"starting": "starting", "subscribePattern": "pattern"}
        key = next((keys[option] for option in keys if message.startswith(option)), "options")
        yield source.problem(key, message)


def _check_table(table: TableSpec) -> Iterator[Problem]:
    if (table.path is None) == (table.database is None and table.table is None):
        message = "the location is missing or ambiguous: set either database and table, or path"
        yield table.problem("", message)
    elif table.path is None and (table.database is None or table.table is None):
        missing = "table" if table.table is None else "database"
        yield table.problem("", f"{missing} is missing")


def _check_step(spec: PipelineSpec, step: StepSpec) -> Iterator[Problem]:
    kinds = {
        "sql": step.sql is not None,
        "function": step.function is not None,
        "deduplicate": bool(step.deduplicate),
    }
    used_kinds = [kind for kind, is_used in kinds.items() if is_used]
    if len(used_kinds) != 1:
        actual = f", not {' and '.join(used_kinds)}" if used_kinds else ""
        yield step.problem("", f"a step has one of sql, function or deduplicate{actual}")
    if step.deduplicate and step.source is None:
        yield step.problem("", "from is missing: the view to deduplicate")
    if step.source is not None and not step.deduplicate:
        message = "from goes with deduplicate only: SQL names the views that it reads itself"
        yield step.problem("from", message)
    yield from _check_delay(step.watermark, step.where)
    yield from check_function(spec, step)
