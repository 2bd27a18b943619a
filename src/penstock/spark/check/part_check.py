"""Names, sources, tables, steps and settings of a pipeline, each looked at alone."""

import re
from collections.abc import Iterator

from penstock.core.errors import KafkaError
from penstock.spark.check.durations import seconds
from penstock.spark.check.step_check import check_function
from penstock.spark.check.views import source_fields
from penstock.spark.decode.fields import misplaced_keys
from penstock.spark.decode.formats.registry import FORMATS
from penstock.spark.errors import SparkPartError
from penstock.spark.pipeline.model import (
    PipelineSpec,
    Problem,
    SourceSpec,
    StepSpec,
    TableSpec,
)
from penstock.spark.pipeline.nearest import suggestion

_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]*://)?(?:\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):(\d+)")


def check_parts(spec: PipelineSpec) -> Iterator[Problem]:
    """All but the columns and queries, the sinks, and what only a broker knows."""
    yield from _settings(spec)
    yield from _producer(spec)
    yield from _names(spec)
    for source in spec.sources:
        yield from _source(spec, source)
    for table in spec.tables:
        yield from _table(table)
    for step in spec.steps:
        yield from _step(spec, step)


def is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _settings(spec: PipelineSpec) -> Iterator[Problem]:
    if not _NAME.fullmatch(spec.name) or len(spec.name) > 100:
        message = (
            f"{spec.name!r} is not a name for a pipeline: letters, digits, `_`, `-` and `.` "
            "only, at most 100"
        )
        yield Problem(spec.line_of("name"), "pipeline.name", message)
    for server in spec.bootstrap_servers.split(","):
        found = _SERVER.fullmatch(server.strip())
        if found is None or not 0 < int(found[1]) < 65536:
            message = f"{server.strip()!r} is not an address such as localhost:9092"
            line = spec.line_of("bootstrap_servers")
            yield Problem(line, "pipeline.bootstrap_servers", message)
    try:
        seconds(spec.trigger)
    except ValueError as error:
        yield Problem(spec.line_of("trigger"), "pipeline.trigger", str(error))
    if spec.max_batch_records < 1:
        message = f"{spec.max_batch_records} is not possible: a batch has at least one record"
        line = spec.line_of("max_batch_records")
        yield Problem(line, "pipeline.max_batch_records", message)
    if "bootstrap.servers" in spec.kafka:
        message = "bootstrap.servers is given by bootstrap_servers: leave it out here"
        yield Problem(spec.line_of("kafka"), "pipeline.kafka", message)
    for name in spec.spark:
        if not name.startswith("spark."):
            message = f"{name} is not a setting of Spark: they begin with `spark.`"
            yield Problem(spec.line_of("spark"), "pipeline.spark", message)
    if not spec.sources:
        message = "there are none: a pipeline reads a topic"
        yield Problem(spec.line_of("sources"), "pipeline.sources", message)
    if not spec.sinks:
        message = "there are none: nothing would run"
        yield Problem(spec.line_of("sinks"), "pipeline.sinks", message)


def _producer(spec: PipelineSpec) -> Iterator[Problem]:
    """Settings that only producers have; sources check all others."""
    from penstock.client.settings import ProducerOptions, resolve
    from penstock.spark.run.source_options import producer_options_of

    given = producer_options_of(spec)
    try:
        if given:
            resolve(ProducerOptions, {**given, "bootstrap_servers": spec.bootstrap_servers})
    except KafkaError as error:
        yield Problem(spec.line_of("kafka"), "pipeline.kafka", error.message)


def _names(spec: PipelineSpec) -> Iterator[Problem]:
    """Views share one space of names; Spark does not tell capitals from small letters."""
    taken: dict[str, str] = {}
    parts: list[tuple[str, SourceSpec | TableSpec | StepSpec]] = [
        *(("sources", each) for each in spec.sources),
        *(("tables", each) for each in spec.tables),
        *(("steps", each) for each in spec.steps),
    ]
    for group, part in parts:
        where = f"{group}.{part.name}"
        if not _VIEW.fullmatch(part.name):
            message = (
                f"{part.name!r} is not a name that SQL can use: letters, digits and `_` only, "
                "and no digit first"
            )
            yield Problem(part.line, where, message)
        first = taken.get(part.name.lower())
        if first is not None:
            yield Problem(part.line, where, f"the name {part.name} is taken already by {first}")
        taken.setdefault(part.name.lower(), where)


def _source(spec: PipelineSpec, source: SourceSpec) -> Iterator[Problem]:
    where = f"sources.{source.name}"

    def problem(key: str, message: str) -> Problem:
        return Problem(source.line_of(key), f"{where}.{key}" if key else where, message)

    if bool(source.topics) == (source.pattern is not None):
        yield problem("", "say what to read: topic (or topics), or pattern")
        return
    for topic in source.topics:
        if not is_topic(topic):
            message = f"{topic!r} cannot be a topic: letters, digits, `.`, `_` and `-` only"
            yield Problem(source.line_of_topic(topic), f"{where}.topic", message)
    if source.format not in FORMATS:
        yield problem("format", f"{source.format!r} is not one of {', '.join(FORMATS)}")
        return
    for key, message in misplaced_keys(source).items():
        yield problem(key, message)
    if source.watermark is not None:
        try:
            seconds(source.watermark.delay)
        except ValueError as error:
            line = source.watermark.line_of("delay")
            yield Problem(line, f"{where}.watermark.delay", str(error))
    yield from _required(source)
    yield from _options(spec, source)


def _required(source: SourceSpec) -> Iterator[Problem]:
    try:
        names = [each.name for each in source_fields(source)]
    except (SparkPartError, OSError, ImportError):
        return
    for name in source.required:
        if name not in names:
            message = f"the required field {name} is not in the schema{suggestion(name, names)}"
            line = source.line_of(f"required.{name}", "required")
            yield Problem(line, f"sources.{source.name}.required", message)


def _options(spec: PipelineSpec, source: SourceSpec) -> Iterator[Problem]:
    from penstock.spark.decode.options import format_options
    from penstock.spark.run.source_options import starting_options_of
    from penstock.spark.source.options import stream_options

    try:
        format_options(source)
        stream_options(starting_options_of(spec, source))
    except KafkaError as error:
        yield Problem(spec.line_of("kafka"), "pipeline.kafka", error.message)
    except (SparkPartError, ValueError) as error:
        message = str(error).removeprefix(f"source {source.name}: ")
        said = {"starting": "starting", "subscribePattern": "pattern"}
        key = next((said[each] for each in said if message.startswith(each)), "options")
        yield Problem(source.line_of(key), f"sources.{source.name}.{key}", message)


def _table(table: TableSpec) -> Iterator[Problem]:
    where = f"tables.{table.name}"
    if (table.path is None) == (table.database is None and table.table is None):
        yield Problem(table.line, where, "say where it is: database and table, or path")
    elif table.path is None and (table.database is None or table.table is None):
        missing = "table" if table.table is None else "database"
        yield Problem(table.line, where, f"{missing} is missing")


def _step(spec: PipelineSpec, step: StepSpec) -> Iterator[Problem]:
    where = f"steps.{step.name}"
    kinds = {
        "sql": step.sql is not None,
        "function": step.function is not None,
        "deduplicate": bool(step.deduplicate),
    }
    given = [name for name, is_there in kinds.items() if is_there]
    if len(given) != 1:
        also = f", not {' and '.join(given)}" if given else ""
        yield Problem(step.line, where, f"a step has one of sql, function or deduplicate{also}")
    if step.deduplicate and step.source is None:
        yield Problem(step.line, where, "from is missing: the view to deduplicate")
    if step.source is not None and not step.deduplicate:
        message = "from goes with deduplicate only: SQL names the views that it reads itself"
        yield Problem(step.line_of("from"), f"{where}.from", message)
    if step.watermark is not None:
        try:
            seconds(step.watermark.delay)
        except ValueError as error:
            line = step.watermark.line_of("delay")
            yield Problem(line, f"{where}.watermark.delay", str(error))
    yield from check_function(spec, step)
