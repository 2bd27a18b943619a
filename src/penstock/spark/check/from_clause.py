"""FROM, JOIN and LATERAL VIEW: which views a SELECT reads, and how they are put together."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from penstock.spark.check import joins
from penstock.spark.check.grouping import UNBOUNDED
from penstock.spark.check.joins import JoinType
from penstock.spark.check.relations import (
    UNKNOWN,
    Column,
    Relation,
    State,
    StateKind,
    combined,
)
from penstock.spark.check.scope import Read, Scope


class Checker(Protocol):
    """What reading a FROM clause needs of whoever checks the query."""

    @property
    def step_name(self) -> str: ...

    def query(
        self, node: exp.Expr, ctes: Mapping[str, Relation], outer: Scope | None
    ) -> Relation: ...

    def table(self, node: exp.Table, ctes: Mapping[str, Relation]) -> Relation: ...

    def add(self, node: exp.Expr, message: str) -> None: ...

    def columns(self, node: exp.Expr, scope: Scope) -> None: ...

    def keep_state(
        self, relation: Relation, node: exp.Expr, state: State, why: str
    ) -> Relation: ...


class FromClause:
    """Fills the scope of a SELECT."""

    def __init__(self, checker: Checker, ctes: Mapping[str, Relation], scope: Scope) -> None:
        self._checker = checker
        self._ctes = ctes
        self._scope = scope

    def read(self, select: exp.Select) -> Relation:
        """All that the SELECT reads, as one."""
        start = select.args.get("from_")
        if start is None:
            return Relation(streaming=False)
        relation = self._one(start.this)
        first = start.this
        listed = [*(select.args.get("joins") or []), *(first.args.get("joins") or [])]
        where = select.args.get("where")
        for join in listed:
            relation = self._join(relation, join, where.this if where is not None else None)
        views = [*(first.args.get("laterals") or []), *(select.args.get("laterals") or [])]
        for view in views:
            self._lateral_view(view)
        return relation

    def _one(self, node: exp.Expr) -> Relation:
        """A view, a subquery or a function; its name is known from here on."""
        found = self._relation(node)
        sample = node.args.get("sample")
        if sample is not None and found.streaming:
            if sample.args.get("percent") is not None:
                self._checker.add(node, "TABLESAMPLE is not possible on a stream")
            found = found.with_state(State(kind=StateKind.LIMIT, step=self._checker.step_name))
        for pivot in node.args.get("pivots") or ():
            self._pivot(pivot, Read(node.alias_or_name, found))
            found = replace(found, columns=(), complete=False, opaque=True)
        found = renamed(found, node.args.get("alias"))
        self._scope.reads.append(Read(node.alias_or_name, found))
        return found

    def _relation(self, node: exp.Expr) -> Relation:
        if isinstance(node, exp.Table):
            return self._checker.table(node, self._ctes)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            return self._checker.query(node, self._ctes, self._scope.outer)
        if isinstance(node, exp.Lateral):
            self._checker.columns(node.this, self._scope)
        if isinstance(node, exp.Values | exp.Lateral | exp.Unnest):
            return Relation(complete=False, streaming=False)
        if isinstance(node, exp.Query):
            return self._checker.query(node, self._ctes, self._scope.outer)
        return UNKNOWN

    def _pivot(self, pivot: exp.Expr, read: Read) -> None:
        if not pivot.args.get("unpivot"):
            for each in [*pivot.expressions, *(one.this for one in pivot.args["fields"])]:
                self._checker.columns(each, Scope([read]))

    def _lateral_view(self, node: exp.Expr) -> None:
        self._checker.columns(node.this, self._scope)
        alias = node.args.get("alias")
        columns = alias.args.get("columns") if alias is not None else None
        relation = Relation(
            columns=tuple(Column(each.name) for each in columns or []),
            complete=bool(columns),
            streaming=False,
        )
        name = alias.name if alias is not None else ""
        self._scope.reads.append(Read(name, relation))

    def _join(self, left: Relation, join: exp.Join, where: exp.Expr | None) -> Relation:
        right = self._one(join.this)
        right_at = len(self._scope.reads) - 1
        kind = joins.join_type(join)
        shared = self._shared(join, left, right, right_at)
        condition = list(joins.conjuncts(join.args.get("on")))
        if join.args.get("on") is not None:
            self._checker.columns(join.args["on"], self._scope)
        found = combined([left, right], _columns(kind, left, right))
        if left.streaming and right.streaming:
            if kind is JoinType.INNER:
                condition += joins.conjuncts(where)
            found = self._streams(found, join, kind, left, right, right_at, condition, shared)
        elif None not in (left.streaming, right.streaming) and found.streaming:
            refused = joins.refused_with_table(kind, bool(left.streaming), bool(right.streaming))
            if refused is not None:
                self._checker.add(join.this, refused)
        if kind in (JoinType.SEMI, JoinType.ANTI):
            # From here on the right side is out of sight.
            self._scope.reads[right_at] = Read("", Relation(streaming=right.streaming))
        return found

    def _streams(
        self,
        found: Relation,
        join: exp.Join,
        kind: JoinType,
        left: Relation,
        right: Relation,
        right_at: int,
        condition: list[exp.Expr],
        shared: list[tuple[Column, Column]],
    ) -> Relation:
        sides = joins.Sides(self._scope, right_at, left, right)
        verdict = joins.judge_streams(kind, sides, condition, shared)
        if verdict.refused is not None:
            self._checker.add(join.this, verdict.refused)
        state = State(
            kind=StateKind.JOIN,
            step=self._checker.step_name,
            keys=(kind.value,),
            bounded=verdict.unbounded is None,
            outer=kind in (JoinType.LEFT, JoinType.RIGHT, JoinType.FULL),
        )
        why = f"state without a bound: {verdict.unbounded}. {UNBOUNDED}"
        return self._checker.keep_state(found, join.this, state, why)

    def _shared(
        self, join: exp.Join, left: Relation, right: Relation, right_at: int
    ) -> list[tuple[Column, Column]]:
        """The columns of USING, or of NATURAL."""
        names = [each.name for each in join.args.get("using") or []]
        if join.method.upper() == "NATURAL":
            names = [each.name for each in left.columns if right.find(each.name)]
        pairs: list[tuple[Column, Column]] = []
        for name in names:
            before = self._scope.reads[:right_at]
            mine = [column for each in before for column in each.relation.find(name)]
            theirs = right.find(name)
            for side, columns, relation in (("left", mine, left), ("right", theirs, right)):
                if not columns and relation.complete:
                    self._checker.add(
                        join.this, f"USING ({name}): the {side} side has no column {name}"
                    )
            self._scope.merged.add(name.lower())
            if mine and theirs:
                pairs.append((mine[0], theirs[0]))
        return pairs


def _columns(kind: JoinType, left: Relation, right: Relation) -> tuple[Column, ...]:
    if kind in (JoinType.SEMI, JoinType.ANTI):
        return left.columns
    return (*left.columns, *right.columns)


def renamed(relation: Relation, alias: exp.Expr | None) -> Relation:
    """With the columns of `AS t(a, b)`."""
    names = alias.args.get("columns") if alias is not None else None
    if not names:
        return relation
    if not relation.complete or len(names) != len(relation.columns):
        return replace(relation, columns=tuple(Column(each.name) for each in names), complete=True)
    columns = tuple(
        replace(column, name=each.name)
        for column, each in zip(relation.columns, names, strict=True)
    )
    return replace(relation, columns=columns)
