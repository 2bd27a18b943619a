"""What a SELECT gives, and what is wrong with it, from what is known of the views it reads.

The same rules as Spark's analysis and its list of what streams cannot do, as far as they can be
sure without Spark: names, columns, fields, grouping, joins, and state that would grow for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from penstock.spark.check import grouping as groups
from penstock.spark.check.expressions import (
    describe,
    function_name,
    is_aggregate,
    window_problem,
    within,
)
from penstock.spark.check.from_clause import FromClause, renamed
from penstock.spark.check.functions import FUNCTIONS
from penstock.spark.check.relations import (
    UNKNOWN,
    Column,
    Finding,
    Relation,
    State,
    StateKind,
    combined,
)
from penstock.spark.check.scope import Found, Scope, columns_in, path_of
from penstock.spark.check.sql_parse import place, sql_of
from penstock.spark.decode.datatypes import StructOf
from penstock.spark.pipeline.nearest import nearest_name, suggestion


@dataclass(frozen=True)
class Views:
    """What SQL may read."""

    known: Mapping[str, Relation]
    """By name, in small letters."""
    later: Mapping[str, int | None] = field(default_factory=dict)
    """Views that are defined further down, with the line."""
    own_functions: bool = False
    """Whether there may be functions that Spark does not bring."""


@dataclass(frozen=True)
class Step:
    """The step that the SQL is of."""

    name: str
    line: int | None = None
    unbounded_state: bool = False


def check_query(tree: exp.Query, views: Views, step: Step) -> tuple[Relation, list[Finding]]:
    """What the query gives, and what is wrong with it."""
    checker = _Checker(views, step)
    relation = checker.query(tree, {}, None)
    return relation, sorted(set(checker.findings), key=lambda each: (each.line, each.column or 0))


class _Checker:
    def __init__(self, views: Views, step: Step) -> None:
        self.views = views
        self.step = step
        self.findings: list[Finding] = []

    @property
    def step_name(self) -> str:
        return self.step.name

    def query(self, node: exp.Expr, ctes: Mapping[str, Relation], outer: Scope | None) -> Relation:
        """A query, or a part of one in brackets."""
        ctes = self._ctes(node, ctes, outer)
        if isinstance(node, exp.Subquery):
            found = self.query(node.this, ctes, outer)
            return self._modified(node, found, Scope([], outer))
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, ctes, outer)
        if isinstance(node, exp.Select):
            return self._select(node, ctes, outer)
        if isinstance(node, exp.Values):
            return Relation(complete=False, streaming=False)
        return UNKNOWN

    def add(self, node: exp.Expr, message: str) -> None:
        self.findings.append(Finding(*place(node), message))

    def table(self, node: exp.Table, ctes: Mapping[str, Relation]) -> Relation:
        """The view of this name."""
        if node.args.get("db") is not None or function_name(node.this) == "identifier":
            return UNKNOWN
        if not isinstance(node.this, exp.Identifier):
            return replace(UNKNOWN, streaming=False)
        name = node.name.lower()
        found = ctes.get(name) or self.views.known.get(name)
        if found is not None:
            return found
        if name in self.views.later:
            line = self.views.later[name]
            where = f" (line {line})" if line is not None else " on"
            self.add(node, f"the view {node.name} is defined only further{where}: move it up")
        else:
            names = [*ctes, *self.views.known]
            self.add(node, f"there is no view {node.name}{suggestion(node.name, names)}")
        return UNKNOWN

    def keep_state(self, relation: Relation, node: exp.Expr, state: State, why: str) -> Relation:
        """One operation more; without a bound it must be meant."""
        if not state.bounded and not self.step.unbounded_state:
            self.add(node, why)
        return relation.with_state(state)

    def columns(self, node: exp.Expr, scope: Scope, *, aliases: bool = False) -> None:
        """Look every column up, and every query within the expression."""
        for each in columns_in(node):
            found = scope.find(each, aliases=aliases)
            if isinstance(found, Finding):
                self.findings.append(found)

    def queries(
        self, node: exp.Expr, ctes: Mapping[str, Relation], scope: Scope, streaming: bool | None
    ) -> None:
        """Queries within an expression may not read streams."""
        for each in node.iter_expressions():
            if isinstance(each, exp.Query | exp.Subquery):
                if self.query(each, ctes, scope).streaming and streaming is not None:
                    self.add(
                        each,
                        "a subquery in an expression (IN, EXISTS, …) cannot read a stream: join it",
                    )
            else:
                self.queries(each, ctes, scope, streaming)

    def _ctes(
        self, node: exp.Expr, ctes: Mapping[str, Relation], outer: Scope | None
    ) -> Mapping[str, Relation]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        found = dict(ctes)
        for each in clause.expressions:
            if clause.args.get("recursive"):
                found[each.alias.lower()] = UNKNOWN
                continue
            made = self.query(each.this, found, outer)
            found[each.alias.lower()] = renamed(made, each.args.get("alias"))
        return found

    def _set_operation(
        self, node: exp.SetOperation, ctes: Mapping[str, Relation], outer: Scope | None
    ) -> Relation:
        left = self.query(node.left, ctes, outer)
        right = self.query(node.right, ctes, outer)
        found = combined([left, right], left.columns)
        found = replace(found, complete=left.complete)
        by_name = bool(node.args.get("by_name"))
        if by_name:
            found = replace(found, complete=False)
        elif left.complete and right.complete and len(left.columns) != len(right.columns):
            many = f"{len(left.columns)} and {len(right.columns)}"
            self.add(node.right, f"both sides need as many columns; they have {many}")
        kinds = {left.streaming, right.streaming}
        if isinstance(node, exp.Union):
            if kinds == {True, False}:
                self.add(node, "a stream and a table cannot be united (UNION)")
        elif isinstance(node, exp.Intersect) and True in kinds:
            self.add(node, "INTERSECT is not possible with a stream: join instead")
        elif isinstance(node, exp.Except) and right.streaming:
            self.add(node, "EXCEPT is not possible with a stream on its right side")
        refused = isinstance(node, exp.Intersect) or (
            isinstance(node, exp.Except) and right.streaming
        )
        # Spark makes EXCEPT ALL an aggregation, too.
        keeps = node.args.get("distinct") or isinstance(node, exp.Except)
        if keeps and found.streaming and not refused:
            found = self._distinct(node, found)
        return self._modified(node, found, Scope([], outer))

    def _select(
        self, node: exp.Select, ctes: Mapping[str, Relation], outer: Scope | None
    ) -> Relation:
        scope = Scope([], outer)
        relation = FromClause(self, ctes, scope).read(node)
        scope.aliases = {
            each.alias_or_name.lower(): each.unalias()
            for each in node.expressions
            if isinstance(each, exp.Alias) or len(path_of(each) or ()) > 1
        }
        grouping = groups.grouping_of(node, scope)
        self._names(node, ctes, scope, relation)
        if node.args.get("pivots"):
            return replace(relation, columns=(), complete=False, opaque=True)
        columns, complete = self._listed(node, scope)
        if grouping is not None:
            self.findings += groups.ungrouped(node, grouping, scope)
        if grouping is not None and relation.streaming:
            self.findings += groups.refused(node, grouping)
            state = State(
                kind=StateKind.AGGREGATION,
                step=self.step.name,
                line=self.step.line,
                keys=tuple(sql_of(each) for each in grouping.keys),
                bounded=grouping.watermarked or not grouping.keys or not self._is_sure(relation),
                watermarked=grouping.watermarked or not self._is_sure(relation),
                session=grouping.session,
            )
            why = groups.unbounded(grouping, _event_times(scope, relation))
            at = grouping.keys[0] if grouping.keys else node
            relation = self.keep_state(relation, at, state, why)
        relation = replace(relation, columns=tuple(columns), complete=complete)
        if node.args.get("distinct") and relation.streaming:
            relation = self._distinct(node, relation)
        return self._modified(node, relation, scope)

    def _is_sure(self, relation: Relation) -> bool:
        return relation.complete or relation.has_watermark

    def _names(
        self, node: exp.Select, ctes: Mapping[str, Relation], scope: Scope, relation: Relation
    ) -> None:
        for each in node.expressions:
            self.columns(each, scope, aliases=True)
        for name in ("where", "group", "having", "order", "sort", "cluster", "qualify"):
            part = node.args.get(name)
            if part is not None:
                self.columns(part, scope, aliases=name != "where")
        where = node.args.get("where")
        for one in within(where) if where is not None else ():
            if is_aggregate(one):
                self.add(
                    one,
                    f"{sql_of(one)} cannot be in WHERE, which is before rows are grouped"
                    ": put it into HAVING",
                )
        parts = [*node.expressions]
        clauses = ("where", "group", "having", "qualify")
        parts += [node.args[each] for each in clauses if node.args.get(each)]
        for each in parts:
            self.queries(each, ctes, scope, relation.streaming)
            for one in within(each):
                self._function(one, streaming=relation.streaming)

    def _function(self, node: exp.Expr, *, streaming: bool | None) -> None:
        name = function_name(node)
        if name and name not in FUNCTIONS and not self.views.own_functions:
            similar = nearest_name(name, FUNCTIONS)
            advice = "" if similar is None else f": did you mean {similar}?"
            self.add(node, f"there is no function {name}{advice}")
        wrong = window_problem(node)
        if wrong is not None:
            self.add(node, wrong)
        if not streaming:
            return
        if isinstance(node, exp.Window):
            self.add(
                node,
                "OVER (…) is not possible on a stream: use window(…) in GROUP BY, or max_by(…)",
            )
        elif name == "monotonically_increasing_id":
            self.add(node, "monotonically_increasing_id() is not possible on a stream: use uuid()")

    def _listed(self, node: exp.Select, scope: Scope) -> tuple[list[Column], bool]:
        """The columns of the list of the SELECT, and whether they are all."""
        found: list[Column] = []
        complete = True
        for each in node.expressions:
            inner = each.unalias()
            if isinstance(inner, exp.Star) or inner.is_star:
                columns, all_known = _star(inner, scope)
                found += columns
                complete = complete and all_known
            elif isinstance(each, exp.Aliases):
                found += [Column(one.name) for one in each.expressions]
            elif isinstance(inner, exp.Explode) and not isinstance(each, exp.Alias):
                complete = False
            else:
                column = describe(each, scope, aliases=True)
                found.append(column)
                named = column.name or isinstance(inner, exp.AggFunc | exp.Binary)
                complete = complete and bool(named)
        return found, complete

    def _distinct(self, node: exp.Expr, relation: Relation) -> Relation:
        kept = not relation.complete or relation.has_watermark
        state = State(
            kind=StateKind.DISTINCT,
            step=self.step.name,
            line=self.step.line,
            keys=tuple(relation.names),
            bounded=kept,
            watermarked=kept,
        )
        return self.keep_state(
            relation,
            node,
            state,
            "state without a watermark: to leave out repeated rows (DISTINCT, UNION, EXCEPT), "
            "every row would be kept for ever. Select the column with the watermark as well, or "
            "use a step with `deduplicate`. " + groups.UNBOUNDED,
        )

    def _modified(self, node: exp.Expr, relation: Relation, scope: Scope) -> Relation:
        """ORDER BY, LIMIT and what else may follow a query."""
        if not relation.streaming:
            return relation
        for name, words in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY")):
            part = node.args.get(name)
            if part is not None:
                self.add(
                    part,
                    f"{words} is not possible on a stream, whose rows have no end: sort where the "
                    "result is read",
                )
        if node.args.get("offset") is not None:
            self.add(node, "OFFSET is not possible on a stream")
        limit = node.args.get("limit")
        if limit is not None and not isinstance(limit.expression, exp.Var):
            state = State(kind=StateKind.LIMIT, step=self.step.name, line=self.step.line)
            return relation.with_state(state)
        return relation


def _event_times(scope: Scope, relation: Relation) -> Relation:
    return replace(relation, columns=tuple(scope.all_columns()))


def _star(node: exp.Expr, scope: Scope) -> tuple[list[Column], bool]:
    """What `*`, `t.*` or `s.*` (of a struct) stands for."""
    star = node if isinstance(node, exp.Star) else node.find(exp.Star)
    if star is not None and star.args.get("replace"):
        return [], False
    without = {each.name.lower() for each in (star.args.get("except_") if star else None) or []}
    if isinstance(node, exp.Star):
        columns, complete = scope.all_columns(), scope.complete
    else:
        columns, complete = _star_of(node, scope)
    return [each for each in columns if each.name.lower() not in without], complete


def _star_of(node: exp.Expr, scope: Scope) -> tuple[list[Column], bool]:
    path = path_of(node)
    if not path:
        return [], False
    for each in scope.reads:
        if len(path) == 1 and each.alias.lower() == path[0].name.lower():
            return list(each.relation.columns), each.relation.complete
    column = exp.column(path[-1].copy(), *(each.copy() for each in reversed(path[:-1])))
    found = scope.find(column)
    kind = found.column.type if isinstance(found, Found) else None
    if not isinstance(kind, StructOf):
        return [], False
    return [Column(each.name, each.type) for each in kind.fields], True
