"""Analysis of all views of a pipeline: their columns and state, and what is wrong with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.spark.check.grouping import UNBOUNDED_ADVICE
from penstock.spark.check.query_only import RUN_ON_FILES
from penstock.spark.check.relations import (
    UNKNOWN,
    Column,
    Relation,
    State,
    StateKind,
    is_time,
    parse_type,
)
from penstock.spark.check.sql_check import Step, Views, check_query
from penstock.spark.check.sql_parse import may_use_keyword_as_column, parse_query
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

_ORIGIN_COLUMNS = (
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
    """By name. If two views have the same name, the first."""
    problems: tuple[Problem, ...] = ()

    def view(self, name: str) -> Relation:
        """Returns the view, or `UNKNOWN` if there is none."""
        return self.views.get(name, UNKNOWN)


def analyze(
    spec: PipelineSpec, *, tables: Mapping[str, Sequence[Column]] | None = None
) -> Analysis:
    """Analyzes all views; `tables` are columns of static tables, as read from their databases."""
    analyzer = _ViewAnalyzer(spec, tables or {})
    for source in spec.sources:
        analyzer.define(source.name, analyzer.source(source))
    for table in spec.tables:
        analyzer.define(table.name, analyzer.table(table))
    for index, step in enumerate(spec.steps):
        analyzer.define(step.name, analyzer.step(index, step))
    return Analysis(analyzer.views, tuple(analyzer.problems))


def source_fields(source: SourceSpec) -> Sequence[Field]:
    """Returns the fields of a source's records, whatever `required` says.

    Raises `OptionError` when the schema is missing or wrong.
    """
    return typed_fields(replace(source, required=()))


@dataclass
class _ViewAnalyzer:
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
        is_complete = True
        try:
            columns += [Column(f.name, f.type) for f in source_fields(source)]
        except (SparkPartError, OSError, ImportError) as error:
            is_complete = False
            # A wrong format, or a key that does not go with it, is a problem of its own.
            if source.format in FORMATS and not misplaced_keys(source):
                key = next(iter(FORMATS[source.format].keys), "format")
                message = str(error).removeprefix(f"source {source.name}: ")
                self.problems.append(source.problem(key, message))
        origin = [*_ORIGIN_COLUMNS, _HEADERS] if source.headers else _ORIGIN_COLUMNS
        columns += [Column(name, parse_type(type_name)) for name, type_name in origin]
        relation = Relation(tuple(columns), is_complete, sources=frozenset([source.name]))
        return self._with_watermark(relation, source.watermark, source)

    def table(self, table: TableSpec) -> Relation:
        columns = self.tables.get(table.name)
        if table.schema is not None:
            try:
                columns = [Column(f.name, f.type) for f in parse_ddl(table.schema)]
            except OptionError as error:
                self.problems.append(table.problem("schema", str(error)))
        return Relation(
            columns=tuple(columns or ()),
            is_complete=columns is not None,
            is_streaming=False,
            sources=frozenset([table.name]),
        )

    def step(self, index: int, step: StepSpec) -> Relation:
        if step.sql is not None:
            relation = self._sql(index, step, step.sql)
        elif step.function is not None:
            relation = replace(UNKNOWN, sources=frozenset(self.views))
        elif step.deduplicate:
            relation = self._deduplicate(index, step)
        else:
            relation = UNKNOWN
        return self._with_watermark(relation, step.watermark, step)

    def _with_watermark(
        self, relation: Relation, watermark: Watermark | None, part: SourceSpec | StepSpec
    ) -> Relation:
        """Returns the relation with event time on the watermark's column, and on no other."""
        if watermark is None:
            return relation
        line = watermark.line_of("column") or part.line
        where = f"{part.where}.watermark"
        name = watermark.column
        matches = relation.find(name)
        if not matches and relation.is_complete:
            if "." in name and relation.find(name.split(".")[0]):
                advice = ": a watermark is on a column, so select the field as one in a step first"
            else:
                advice = suggestion(name, relation.names)
            self.add(line, where, f"there is no column {name}{advice}")
            return relation
        if not matches:
            matches = [Column(name)]
            relation = replace(relation, columns=(*relation.columns, *matches))
        column = matches[0]
        if column.type is not None and not is_time(column.type) and column.window is None:
            self.add(
                line,
                where,
                f"{name} is a {column.type}, but a watermark needs a timestamp: write "
                f"`{name} timestamp` in the schema, or convert it in a step (to_timestamp(…))",
            )
        columns = tuple(replace(c, is_event_time=c is column) for c in relation.columns)
        return replace(relation, columns=columns)

    def _sql(self, index: int, step: StepSpec, sql: str) -> Relation:
        parsed = parse_query(sql)
        if parsed.tree is None:
            findings = [] if parsed.finding is None else [parsed.finding]
            relation = UNKNOWN
        else:
            views = Views(
                relations={name.lower(): view for name, view in self.views.items()},
                later={later.name.lower(): later.line for later in self.spec.steps[index:]},
                has_own_functions=_has_own_functions(self.spec),
                may_be_files=self.spec.spark.get(RUN_ON_FILES, "").lower() == "true",
            )
            checked_step = Step(step.name, step.line, step.unbounded_state)
            try:
                relation, findings = check_query(parsed.tree, views, checked_step)
            except RecursionError:
                # Thousands of operators: only Spark can tell whether it is right.
                return UNKNOWN
        if (
            findings
            and not parsed.is_refusal
            and may_use_keyword_as_column(sql, self._column_names())
        ):
            return UNKNOWN
        for finding in findings:
            line = None if step.sql_line is None else step.sql_line + finding.line - 1
            position = ""
            if finding.column is not None:
                position = f" (column {finding.column + step.sql_indent})"
            self.add(line, f"steps.{step.name}.sql", f"{finding.message}{position}")
        return relation

    def _column_names(self) -> set[str]:
        """Returns the names of all columns of the views so far, and of their fields."""
        names: set[str] = set()
        for view in self.views.values():
            for column in view.columns:
                names |= {column.name.lower(), *_field_names(column.type)}
        return names

    def _deduplicate(self, index: int, step: StepSpec) -> Relation:
        source = self.views.get(step.source or "")
        if source is None:
            if step.source in [later.name for later in self.spec.steps[index:]]:
                message = f"the view {step.source} is only defined further down: move it up"
            else:
                advice = suggestion(step.source or "", self.views)
                message = f"there is no view {step.source}{advice}"
            if step.source is not None:
                self.problems.append(step.problem("from", message))
            return UNKNOWN
        for name in step.deduplicate:
            if source.is_complete and not source.find(name):
                message = f"{step.source} has no column {name}{suggestion(name, source.names)}"
                self.problems.append(step.problem("deduplicate", message, name))
        if source.is_streaming is False:
            message = f"{step.source} is a table: use SELECT DISTINCT for it"
            self.problems.append(step.problem("deduplicate", message))
        if not source.is_streaming:
            return source
        has_watermark = source.has_watermark or not source.is_complete
        if not has_watermark and not step.unbounded_state:
            message = (
                f"state without a watermark: {step.source} has none, so every key would be kept "
                f"forever. Give the source (or an earlier step) a `watermark`. {UNBOUNDED_ADVICE}"
            )
            self.problems.append(step.problem("deduplicate", message))
        return source.with_state(
            State(
                kind=StateKind.DEDUPLICATION,
                step=step.name,
                line=step.line,
                keys=step.deduplicate,
                is_bounded=has_watermark,
                is_watermarked=has_watermark,
            )
        )


def _has_own_functions(spec: PipelineSpec) -> bool:
    """Returns whether functions may exist that are not built into Spark."""
    return "spark.sql.extensions" in spec.spark or any(
        step.function is not None for step in spec.steps
    )


def _field_names(data_type: DataType | None) -> Iterator[str]:
    """Yields the names of the fields of a type, at any depth, in lower case."""
    match data_type:
        case ArrayOf(element):
            yield from _field_names(element)
        case MapOf(_, value):
            yield from _field_names(value)
        case StructOf(fields):
            for struct_field in fields:
                yield struct_field.name.lower()
                yield from _field_names(struct_field.type)
