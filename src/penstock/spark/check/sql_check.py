"""The columns and state of a SELECT, and its mistakes, from what is known of the views it reads.

It applies the rules of Spark's analysis and of its unsupported streaming operations, as far as they
are certain without Spark: names, columns, fields, grouping, joins, and state that grows forever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from penstock.spark.check import grouping as groups
from penstock.spark.check.expressions import (
    column_of,
    function_name,
    is_aggregate,
    walk_expression,
    window_problem,
)
from penstock.spark.check.from_clause import FromClause, rename_columns
from penstock.spark.check.functions import FUNCTIONS
from penstock.spark.check.query_only import FILE_FORMATS, RUN_ON_FILES
from penstock.spark.check.relations import (
    UNKNOWN,
    Column,
    Finding,
    Relation,
    State,
    StateKind,
    combine,
)
from penstock.spark.check.scope import ResolvedColumn, Scope, columns_in, path_of
from penstock.spark.check.sql_parse import position_of, sql_of
from penstock.spark.decode.datatypes import StructOf
from penstock.spark.pipeline.nearest import nearest_name, suggestion


@dataclass(frozen=True)
class Views:
    """The views that SQL may read."""

    relations: Mapping[str, Relation]
    """By name, in lower case."""
    later: Mapping[str, int | None] = field(default_factory=dict)
    """Views that are defined further down, with their lines."""
    has_own_functions: bool = False
    """Whether functions may exist that are not built into Spark."""
    may_be_files: bool = False
    """Whether a query may read files by their paths."""


@dataclass(frozen=True)
class Step:
    """The step that the SQL belongs to."""

    name: str
    line: int | None = None
    unbounded_state: bool = False


def check_query(tree: exp.Query, views: Views, step: Step) -> tuple[Relation, list[Finding]]:
    """Returns the result of the query as far as it is known, and the query's mistakes."""
    checker = QueryChecker(views, step)
    relation = checker.query(tree, {}, None)
    return relation, sorted(set(checker.findings), key=lambda f: (f.line, f.column or 0))


class QueryChecker:
    """Checks one query; `FromClause` calls it for the parts of a FROM clause."""

    def __init__(self, views: Views, step: Step) -> None:
        self.views = views
        self.step = step
        self.findings: list[Finding] = []

    # --- called by FromClause, too

    def query(self, node: exp.Expr, ctes: Mapping[str, Relation], outer: Scope | None) -> Relation:
        """Checks a query, or a part of one in brackets."""
        ctes = self._ctes(node, ctes, outer)
        if isinstance(node, exp.Subquery):
            relation = self.query(node.this, ctes, outer)
            return self._check_modifiers(node, relation)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, ctes, outer)
        if isinstance(node, exp.Select):
            return self._select(node, ctes, outer)
        if isinstance(node, exp.Values):
            return Relation(is_complete=False, is_streaming=False)
        return UNKNOWN

    def add(self, node: exp.Expr, message: str) -> None:
        self.findings.append(Finding(*position_of(node), message))

    def table(self, node: exp.Table, ctes: Mapping[str, Relation]) -> Relation:
        """Returns the view of this name."""
        schema = node.args.get("db")
        if (
            schema is not None
            and schema.name.lower() in FILE_FORMATS
            and node.args.get("catalog") is None
            and not self.views.may_be_files
        ):
            message = (
                f"{sql_of(node)} is a file, not a view: name it in `tables` with its path, or set "
                f"{RUN_ON_FILES} in `spark` to true"
            )
            self.add(node, message)
        if schema is not None or function_name(node.this) == "identifier":
            return UNKNOWN
        if not isinstance(node.this, exp.Identifier):
            return replace(UNKNOWN, is_streaming=False)
        name = node.name.lower()
        relation = ctes.get(name) or self.views.relations.get(name)
        if relation is not None:
            return relation
        if name in self.views.later:
            line = self.views.later[name]
            where = f" in line {line}" if line is not None else " further down"
            self.add(node, f"the view {node.name} is only defined{where}: move it up")
        else:
            names = [*ctes, *self.views.relations]
            self.add(node, f"there is no view {node.name}{suggestion(node.name, names)}")
        return UNKNOWN

    def keep_state(self, relation: Relation, node: exp.Expr, state: State, reason: str) -> Relation:
        """Adds an operation with state; `why` is its finding if it is unbounded unintentionally."""
        if not state.is_bounded and not self.step.unbounded_state:
            self.add(node, reason)
        return relation.with_state(state)

    def columns(self, node: exp.Expr, scope: Scope, *, aliases: bool = False) -> None:
        """Checks that every column of an expression exists."""
        for column in columns_in(node):
            resolved = scope.find(column, aliases=aliases)
            if isinstance(resolved, Finding):
                self.findings.append(resolved)

    # --- parts of queries

    def _subqueries(
        self, node: exp.Expr, ctes: Mapping[str, Relation], scope: Scope, is_streaming: bool | None
    ) -> None:
        """Checks the queries in an expression, which may not read streams."""
        for part in node.iter_expressions():
            if isinstance(part, exp.Query | exp.Subquery):
                if self.query(part, ctes, scope).is_streaming and is_streaming is not None:
                    self.add(
                        part,
                        "a subquery in an expression (IN, EXISTS, …) cannot read a stream: join it",
                    )
            else:
                self._subqueries(part, ctes, scope, is_streaming)

    def _ctes(
        self, node: exp.Expr, ctes: Mapping[str, Relation], outer: Scope | None
    ) -> Mapping[str, Relation]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        relations = dict(ctes)
        for cte in clause.expressions:
            if clause.args.get("recursive"):
                relations[cte.alias.lower()] = UNKNOWN
                continue
            relation = self.query(cte.this, relations, outer)
            relations[cte.alias.lower()] = rename_columns(relation, cte.args.get("alias"))
        return relations

    def _set_operation(
        self, node: exp.SetOperation, ctes: Mapping[str, Relation], outer: Scope | None
    ) -> Relation:
        left = self.query(node.left, ctes, outer)
        right = self.query(node.right, ctes, outer)
        is_by_name = bool(node.args.get("by_name"))
        relation = replace(
            combine([left, right], left.columns), is_complete=left.is_complete and not is_by_name
        )
        has_all_columns = left.is_complete and right.is_complete
        if not is_by_name and has_all_columns and len(left.columns) != len(right.columns):
            counts = f"{len(left.columns)} and {len(right.columns)}"
            self.add(node.right, f"both sides need as many columns; they have {counts}")
        is_refused = False
        if isinstance(node, exp.Union):
            if {left.is_streaming, right.is_streaming} == {True, False}:
                self.add(node, "a stream and a table cannot be united (UNION)")
        elif isinstance(node, exp.Intersect):
            is_refused = True
            if left.is_streaming or right.is_streaming:
                self.add(node, "INTERSECT is not possible with a stream: join instead")
        elif isinstance(node, exp.Except) and right.is_streaming:
            is_refused = True
            self.add(node, "EXCEPT is not possible with a stream on its right side")
        # Spark runs EXCEPT ALL as an aggregation, too.
        keeps_state = node.args.get("distinct") or isinstance(node, exp.Except)
        if keeps_state and relation.is_streaming and not is_refused:
            relation = self._distinct(node, relation)
        return self._check_modifiers(node, relation)

    def _select(
        self, node: exp.Select, ctes: Mapping[str, Relation], outer: Scope | None
    ) -> Relation:
        scope = Scope([], outer)
        relation = FromClause(self, ctes, scope).read(node)
        scope.aliases = {
            expression.alias_or_name.lower(): expression.unalias()
            for expression in node.expressions
            if isinstance(expression, exp.Alias) or len(path_of(expression) or ()) > 1
        }
        grouping = groups.grouping_of(node, scope)
        self._check_names(node, ctes, scope, relation)
        if node.args.get("pivots"):
            return replace(relation, columns=(), is_complete=False, is_opaque=True)
        columns, is_complete = self._selected_columns(node, scope)
        if grouping is not None:
            self.findings += groups.ungrouped_columns(node, grouping, scope)
        if grouping is not None and relation.is_streaming:
            self.findings += groups.refused_aggregates(node, grouping)
            has_watermark = grouping.is_watermarked or not (
                relation.is_complete or relation.has_watermark
            )
            state = State(
                kind=StateKind.AGGREGATION,
                step=self.step.name,
                line=self.step.line,
                keys=tuple(sql_of(key) for key in grouping.keys),
                is_bounded=has_watermark or not grouping.keys,
                is_watermarked=has_watermark,
                is_session=grouping.is_session,
            )
            all_columns = replace(relation, columns=tuple(scope.all_columns()))
            reason = groups.unbounded_message(grouping, all_columns)
            at = grouping.keys[0] if grouping.keys else node
            relation = self.keep_state(relation, at, state, reason)
        relation = replace(relation, columns=tuple(columns), is_complete=is_complete)
        if node.args.get("distinct") and relation.is_streaming:
            relation = self._distinct(node, relation)
        return self._check_modifiers(node, relation)

    def _check_names(
        self, node: exp.Select, ctes: Mapping[str, Relation], scope: Scope, relation: Relation
    ) -> None:
        for expression in node.expressions:
            self.columns(expression, scope, aliases=True)
        for clause in ("where", "group", "having", "order", "sort", "cluster", "qualify"):
            part = node.args.get(clause)
            if part is not None:
                self.columns(part, scope, aliases=clause != "where")
        where = node.args.get("where")
        for inner in walk_expression(where) if where is not None else ():
            if is_aggregate(inner):
                self.add(
                    inner,
                    f"{sql_of(inner)} cannot be in WHERE, which is evaluated before rows are "
                    "grouped: put it into HAVING",
                )
        clauses = ("where", "group", "having", "qualify")
        parts = [node.args[clause] for clause in clauses if node.args.get(clause)]
        for part in [*node.expressions, *parts]:
            self._subqueries(part, ctes, scope, relation.is_streaming)
            for inner in walk_expression(part):
                self._check_function(inner, is_streaming=relation.is_streaming)

    def _check_function(self, node: exp.Expr, *, is_streaming: bool | None) -> None:
        name = function_name(node)
        if name and name not in FUNCTIONS and not self.views.has_own_functions:
            similar = nearest_name(name, FUNCTIONS)
            advice = "" if similar is None else f": did you mean {similar}?"
            self.add(node, f"there is no function {name}{advice}")
        problem = window_problem(node)
        if problem is not None:
            self.add(node, problem)
        if not is_streaming:
            return
        if isinstance(node, exp.Window):
            self.add(
                node,
                "OVER (…) is not possible on a stream: use window(…) in GROUP BY, or max_by(…)",
            )
        elif name == "monotonically_increasing_id":
            self.add(node, "monotonically_increasing_id() is not possible on a stream: use uuid()")

    def _selected_columns(self, node: exp.Select, scope: Scope) -> tuple[list[Column], bool]:
        """Returns the columns of the SELECT list, and whether they are all."""
        columns: list[Column] = []
        is_complete = True
        for expression in node.expressions:
            inner = expression.unalias()
            if isinstance(inner, exp.Star) or inner.is_star:
                star_columns, are_all = _star_columns(inner, scope)
                columns += star_columns
                is_complete = is_complete and are_all
            elif isinstance(expression, exp.Aliases):
                columns += [Column(alias.name) for alias in expression.expressions]
            elif isinstance(inner, exp.Explode) and not isinstance(expression, exp.Alias):
                is_complete = False
            else:
                column = column_of(expression, scope, aliases=True)
                columns.append(column)
                has_one_column = column.name or isinstance(inner, exp.AggFunc | exp.Binary)
                is_complete = is_complete and bool(has_one_column)
        return columns, is_complete

    def _distinct(self, node: exp.Expr, relation: Relation) -> Relation:
        has_watermark = not relation.is_complete or relation.has_watermark
        state = State(
            kind=StateKind.DISTINCT,
            step=self.step.name,
            line=self.step.line,
            keys=tuple(relation.names),
            is_bounded=has_watermark,
            is_watermarked=has_watermark,
        )
        return self.keep_state(
            relation,
            node,
            state,
            "state without a watermark: to leave out repeated rows (DISTINCT, UNION, EXCEPT), "
            "every row would be kept forever. Select the column with the watermark as well, or "
            f"use a step with `deduplicate`. {groups.UNBOUNDED_ADVICE}",
        )

    def _check_modifiers(self, node: exp.Expr, relation: Relation) -> Relation:
        """Checks ORDER BY, LIMIT and other clauses that may follow a query."""
        if not relation.is_streaming:
            return relation
        for clause, sql in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY")):
            part = node.args.get(clause)
            if part is not None:
                self.add(
                    part,
                    f"{sql} is not possible on a stream, whose rows have no end: sort where the "
                    "result is read",
                )
        if node.args.get("offset") is not None:
            self.add(node, "OFFSET is not possible on a stream: leave it out")
        limit = node.args.get("limit")
        if limit is not None and not isinstance(limit.expression, exp.Var):
            state = State(kind=StateKind.LIMIT, step=self.step.name, line=self.step.line)
            return relation.with_state(state)
        return relation


def _star_columns(node: exp.Expr, scope: Scope) -> tuple[list[Column], bool]:
    """Returns the columns of `*`, `t.*` or `s.*` (of a struct), and whether they are all."""
    star = node if isinstance(node, exp.Star) else node.find(exp.Star)
    if star is not None and star.args.get("replace"):
        return [], False
    excluded = {name.name.lower() for name in (star.args.get("except_") if star else None) or []}
    if isinstance(node, exp.Star):
        columns, is_complete = scope.all_columns(), scope.is_complete
    else:
        columns, is_complete = _qualified_star_columns(node, scope)
    return [column for column in columns if column.name.lower() not in excluded], is_complete


def _qualified_star_columns(node: exp.Expr, scope: Scope) -> tuple[list[Column], bool]:
    path = path_of(node)
    if not path:
        return [], False
    for item in scope.items:
        if len(path) == 1 and item.alias.lower() == path[0].name.lower():
            return list(item.relation.columns), item.relation.is_complete
    column = exp.column(path[-1].copy(), *(part.copy() for part in reversed(path[:-1])))
    resolved = scope.find(column)
    data_type = resolved.column.type if isinstance(resolved, ResolvedColumn) else None
    if not isinstance(data_type, StructOf):
        return [], False
    return [Column(field.name, field.type) for field in data_type.fields], True
