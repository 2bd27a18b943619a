"""All views of a pipeline: what each has for columns, and what is wrong on the way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.spark.check.grouping import UNBOUNDED
from penstock.spark.check.relations import UNKNOWN, Column, Relation, State, StateKind
from penstock.spark.check.sql_check import Step, Views, check_query
from penstock.spark.check.sql_parse import may_be_misread, parse_query
from penstock.spark.check.types import is_time, parse_type
from penstock.spark.decode.datatypes import ArrayOf, DataType, Field, MapOf, StructOf
from penstock.spark.decode.ddl import parse_ddl
from penstock.spark.decode.fields import misplaced_keys, typed_fields
from penstock.spark.decode.formats.registry import FORMATS
from penstock.spark.errors import OptionError, SparkPartError
from penstock.spark.pipeline.model import (
    PipelineSpec,
    Problem,
    SourceSpec,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.pipeline.nearest import suggestion

_RECORD = (
    ("_key", "binary"),
    ("_topic", "string"),
    ("_partition", "int"),
    ("_offset", "bigint"),
    ("_timestamp", "timestamp"),
)
_HEADERS = ("_headers", "array<struct<key: string, value: binary>>")


@dataclass(frozen=True)
class Analysis:
    """What is known of a pipeline without running it."""

    views: Mapping[str, Relation]
    """By name. Of two views with one name, the first."""
    problems: tuple[Problem, ...] = ()

    def view(self, name: str) -> Relation:
        """The view, or one of which nothing is known."""
        return self.views.get(name, UNKNOWN)


@dataclass
class _Builder:
    spec: PipelineSpec
    tables: Mapping[str, Sequence[Column]]
    views: dict[str, Relation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, line: int | None, where: str, message: str) -> None:
        self.problems.append(Problem(line, where, message))

    def define(self, name: str, relation: Relation) -> None:
        self.views.setdefault(name, replace(relation, sources=relation.sources | {name}))

    def source(self, source: SourceSpec) -> Relation:
        columns: list[Column] = []
        complete = True
        where = f"sources.{source.name}"
        try:
            columns += [Column(each.name, each.type) for each in source_fields(source)]
        except (SparkPartError, OSError, ImportError) as error:
            complete = False
            # A wrong format, or a key that does not go with it, is a problem of its own.
            if source.format in FORMATS and not misplaced_keys(source):
                key = next(iter(FORMATS[source.format].keys), "format")
                message = str(error).removeprefix(f"source {source.name}: ")
                self.add(source.line_of(key), f"{where}.{key}", message)
        record = [*_RECORD, _HEADERS] if source.headers else _RECORD
        columns += [Column(name, parse_type(kind)) for name, kind in record]
        relation = Relation(tuple(columns), complete, sources=frozenset([source.name]))
        return self.watermarked(relation, source.watermark, where, source.line)

    def table(self, table: TableSpec) -> Relation:
        known = self.tables.get(table.name)
        if table.schema is not None:
            try:
                known = [Column(each.name, each.type) for each in parse_ddl(table.schema)]
            except OptionError as error:
                self.add(table.line_of("schema"), f"tables.{table.name}.schema", str(error))
        return Relation(
            columns=tuple(known or ()),
            complete=known is not None,
            streaming=False,
            sources=frozenset([table.name]),
        )

    def step(self, at: int, step: StepSpec) -> Relation:
        where = f"steps.{step.name}"
        if step.sql is not None:
            relation = self._sql(at, step, step.sql)
        elif step.function is not None:
            relation = replace(UNKNOWN, sources=frozenset(self.views))
        elif step.deduplicate:
            relation = self._deduplicated(at, step)
        else:
            relation = UNKNOWN
        return self.watermarked(relation, step.watermark, where, step.line)

    def watermarked(
        self, relation: Relation, watermark: Watermark | None, where: str, line: int | None
    ) -> Relation:
        """With event time on this column, and on no other."""
        if watermark is None:
            return relation
        line = watermark.line_of("column") or line
        where = f"{where}.watermark"
        name = watermark.column
        found = relation.find(name)
        if not found and relation.complete:
            if "." in name and relation.find(name.split(".")[0]):
                advice = ": a watermark is on a column, so select the field as one in a step first"
            else:
                advice = suggestion(name, relation.names)
            self.add(line, where, f"there is no column {name}{advice}")
            return relation
        if not found:
            found = [Column(name)]
            relation = replace(relation, columns=(*relation.columns, *found))
        kind = found[0].type
        if kind is not None and not is_time(kind) and not _is_window(found[0]):
            self.add(
                line,
                where,
                f"{name} is a {kind}, and a watermark needs a timestamp: say "
                f"`{name} timestamp` in the schema, or make one in a step (to_timestamp(…))",
            )
        columns = tuple(replace(each, event_time=each is found[0]) for each in relation.columns)
        return replace(relation, columns=columns)

    def _sql(self, at: int, step: StepSpec, sql: str) -> Relation:
        where = f"steps.{step.name}.sql"
        parsed = parse_query(sql)
        if parsed.tree is None:
            findings = [] if parsed.finding is None else [parsed.finding]
            relation = UNKNOWN
        else:
            views = Views(
                known={name.lower(): each for name, each in self.views.items()},
                later={each.name.lower(): each.line for each in self.spec.steps[at:]},
                own_functions=_has_own_functions(self.spec),
            )
            about = Step(step.name, step.line, step.unbounded_state)
            relation, findings = check_query(parsed.tree, views, about)
        if findings and may_be_misread(sql, self._columns()):
            relation, findings = UNKNOWN, []
        for each in findings:
            line = None if step.sql_line is None else step.sql_line + each.line - 1
            place = ""
            if each.column is not None:
                place = f" (column {each.column + step.sql_indent})"
            self.add(line, where, f"{each.message}{place}")
        return relation

    def _columns(self) -> set[str]:
        """All columns of the views so far, and fields within them, in small letters."""
        found: set[str] = set()
        for view in self.views.values():
            for each in view.columns:
                found |= {each.name.lower(), *(_names_in(each.type))}
        return found

    def _deduplicated(self, at: int, step: StepSpec) -> Relation:
        where = f"steps.{step.name}"
        known = self.views.get(step.source or "")
        if known is None:
            later = [each.name for each in self.spec.steps[at:]]
            if step.source in later:
                message = f"the view {step.source} is defined only further on: move it up"
            else:
                advice = suggestion(step.source or "", self.views)
                message = f"there is no view {step.source}{advice}"
            if step.source is not None:
                self.add(step.line_of("from"), f"{where}.from", message)
            return UNKNOWN
        for each in step.deduplicate:
            if known.complete and not known.find(each):
                message = f"{step.source} has no column {each}{suggestion(each, known.names)}"
                line = step.line_of(f"deduplicate.{each}", "deduplicate")
                self.add(line, f"{where}.deduplicate", message)
        if known.streaming is False:
            message = f"{step.source} is a table: use SELECT DISTINCT for it"
            self.add(step.line_of("deduplicate"), f"{where}.deduplicate", message)
        if not known.streaming:
            return known
        kept = known.has_watermark or not known.complete
        if not kept and not step.unbounded_state:
            message = (
                f"state without a watermark: {step.source} has none, so that every key would be "
                "kept for ever. Give the source (or an earlier step) a `watermark`. " + UNBOUNDED
            )
            self.add(step.line_of("deduplicate"), f"{where}.deduplicate", message)
        return known.with_state(
            State(
                kind=StateKind.DEDUPLICATION,
                step=step.name,
                line=step.line,
                keys=step.deduplicate,
                bounded=kept,
                watermarked=kept,
            )
        )


def analyse(
    spec: PipelineSpec, *, tables: Mapping[str, Sequence[Column]] | None = None
) -> Analysis:
    """Follow all views; `tables` are columns of static tables, as their databases say."""
    builder = _Builder(spec, tables or {})
    for source in spec.sources:
        builder.define(source.name, builder.source(source))
    for table in spec.tables:
        builder.define(table.name, builder.table(table))
    for at, step in enumerate(spec.steps):
        builder.define(step.name, builder.step(at, step))
    return Analysis(builder.views, tuple(builder.problems))


def source_fields(source: SourceSpec) -> Sequence[Field]:
    """The fields of its records. `OptionError` if the schema is missing or wrong."""
    return typed_fields(replace(source, required=()))


def _has_own_functions(spec: PipelineSpec) -> bool:
    """Whether functions may be there that Spark does not bring."""
    return "spark.sql.extensions" in spec.spark or any(
        each.function is not None for each in spec.steps
    )


def _names_in(kind: DataType | None) -> Iterator[str]:
    """Of the fields of a type, at any depth."""
    match kind:
        case ArrayOf(element):
            yield from _names_in(element)
        case MapOf(_, value):
            yield from _names_in(value)
        case StructOf(fields):
            for each in fields:
                yield each.name.lower()
                yield from _names_in(each.type)


def _is_window(column: Column) -> bool:
    return column.window is not None
