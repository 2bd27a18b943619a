"""FROM, JOIN and LATERAL VIEW: the views that a SELECT reads, and how they are joined."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.spark.check import joins
from penstock.spark.check.grouping import UNBOUNDED_ADVICE
from penstock.spark.check.joins import JoinType
from penstock.spark.check.relations import (
    UNKNOWN,
    Column,
    Relation,
    State,
    StateKind,
    combine,
)
from penstock.spark.check.scope import FromItem, Scope

if TYPE_CHECKING:
    from penstock.spark.check.sql_check import QueryChecker


class FromClause:
    """The FROM clause of a SELECT; reading it fills the SELECT's scope."""

    def __init__(self, checker: "QueryChecker", ctes: Mapping[str, Relation], scope: Scope) -> None:
        self._checker = checker
        self._ctes = ctes
        self._scope = scope

    def read(self, select: exp.Select) -> Relation:
        """Returns everything that the SELECT reads, as one relation."""
        start = select.args.get("from_")
        if start is None:
            return Relation(is_streaming=False)
        first = start.this
        relation = self._add_item(first)
        where = select.args.get("where")
        for join in [*(select.args.get("joins") or []), *(first.args.get("joins") or [])]:
            relation = self._join(relation, join, where.this if where is not None else None)
        for view in [*(first.args.get("laterals") or []), *(select.args.get("laterals") or [])]:
            self._lateral_view(view)
        return relation

    def _add_item(self, node: exp.Expr) -> Relation:
        """Adds a view, a subquery or a table function to the scope, and returns its relation."""
        relation = self._relation(node)
        sample = node.args.get("sample")
        if sample is not None and relation.is_streaming:
            if sample.args.get("percent") is not None:
                self._checker.add(node, "TABLESAMPLE is not possible on a stream: leave it out")
            relation = relation.with_state(
                State(kind=StateKind.LIMIT, step=self._checker.step.name)
            )
        for pivot in node.args.get("pivots") or ():
            self._pivot(pivot, FromItem(node.alias_or_name, relation))
            relation = replace(relation, columns=(), is_complete=False, is_opaque=True)
        relation = rename_columns(relation, node.args.get("alias"))
        self._scope.items.append(FromItem(node.alias_or_name, relation))
        return relation

    def _relation(self, node: exp.Expr) -> Relation:
        if isinstance(node, exp.Table):
            return self._checker.table(node, self._ctes)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            return self._checker.query(node, self._ctes, self._scope.outer)
        if isinstance(node, exp.Lateral):
            self._checker.columns(node.this, self._scope)
        if isinstance(node, exp.Values | exp.Lateral | exp.Unnest):
            return Relation(is_complete=False, is_streaming=False)
        if isinstance(node, exp.Query):
            return self._checker.query(node, self._ctes, self._scope.outer)
        return UNKNOWN

    def _pivot(self, pivot: exp.Expr, item: FromItem) -> None:
        if not pivot.args.get("unpivot"):
            for part in [*pivot.expressions, *(field.this for field in pivot.args["fields"])]:
                self._checker.columns(part, Scope([item]))

    def _lateral_view(self, node: exp.Expr) -> None:
        self._checker.columns(node.this, self._scope)
        alias = node.args.get("alias")
        columns = alias.args.get("columns") if alias is not None else None
        relation = Relation(
            columns=tuple(Column(column.name) for column in columns or []),
            is_complete=bool(columns),
            is_streaming=False,
        )
        self._scope.items.append(FromItem(alias.name if alias is not None else "", relation))

    def _join(self, left: Relation, join: exp.Join, where: exp.Expr | None) -> Relation:
        right = self._add_item(join.this)
        right_index = len(self._scope.items) - 1
        kind = joins.join_type(join)
        shared = self._shared_columns(join, left, right, right_index)
        condition = list(joins.conjuncts(join.args.get("on")))
        if join.args.get("on") is not None:
            self._checker.columns(join.args["on"], self._scope)
        hides_right = kind in (JoinType.SEMI, JoinType.ANTI)
        columns = left.columns if hides_right else (*left.columns, *right.columns)
        joined = combine([left, right], columns)
        if left.is_streaming and right.is_streaming:
            if kind is JoinType.INNER:
                condition += joins.conjuncts(where)
            sides = joins.JoinSides(self._scope, right_index, left, right)
            joined = self._join_streams(joined, join, kind, sides, condition, shared)
        elif None not in (left.is_streaming, right.is_streaming) and joined.is_streaming:
            refusal = joins.table_join_refusal(
                kind, bool(left.is_streaming), bool(right.is_streaming)
            )
            if refusal is not None:
                self._checker.add(join.this, refusal)
        if hides_right:
            self._scope.items[right_index] = FromItem("", Relation(is_streaming=right.is_streaming))
        return joined

    def _join_streams(
        self,
        joined: Relation,
        join: exp.Join,
        kind: JoinType,
        sides: joins.JoinSides,
        condition: list[exp.Expr],
        shared: list[tuple[Column, Column]],
    ) -> Relation:
        check = joins.check_stream_join(kind, sides, condition, shared)
        if check.refusal is not None:
            self._checker.add(join.this, check.refusal)
        state = State(
            kind=StateKind.JOIN,
            step=self._checker.step.name,
            keys=(kind.value,),
            is_bounded=check.unbounded is None,
            is_outer_join=kind in (JoinType.LEFT, JoinType.RIGHT, JoinType.FULL),
        )
        message = f"state without a bound: {check.unbounded}. {UNBOUNDED_ADVICE}"
        return self._checker.keep_state(joined, join.this, state, message)

    def _shared_columns(
        self, join: exp.Join, left: Relation, right: Relation, right_index: int
    ) -> list[tuple[Column, Column]]:
        """Returns the pairs of columns that USING or NATURAL compares."""
        names = [column.name for column in join.args.get("using") or []]
        if join.method.upper() == "NATURAL":
            names = [column.name for column in left.columns if right.find(column.name)]
        pairs: list[tuple[Column, Column]] = []
        for name in names:
            left_items = self._scope.items[:right_index]
            left_columns = [
                column for left_item in left_items for column in left_item.relation.find(name)
            ]
            right_columns = right.find(name)
            for side, columns, relation in (
                ("left", left_columns, left),
                ("right", right_columns, right),
            ):
                if not columns and relation.is_complete:
                    self._checker.add(
                        join.this, f"USING ({name}): the {side} side has no column {name}"
                    )
            self._scope.merged_columns.add(name.lower())
            if left_columns and right_columns:
                pairs.append((left_columns[0], right_columns[0]))
        return pairs


def rename_columns(relation: Relation, alias: exp.Expr | None) -> Relation:
    """Returns the relation with the column names of `AS t(a, b)`, if the alias has any."""
    names = alias.args.get("columns") if alias is not None else None
    if not names:
        return relation
    if not relation.is_complete or len(names) != len(relation.columns):
        columns = tuple(Column(name.name) for name in names)
        return replace(relation, columns=columns, is_complete=True)
    columns = tuple(
        replace(column, name=name.name)
        for column, name in zip(relation.columns, names, strict=True)
    )
    return replace(relation, columns=columns)
