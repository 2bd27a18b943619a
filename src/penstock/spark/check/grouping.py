"""Aggregations on streams: their keys, whether their state is bounded, and what Spark refuses."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from penstock.spark.check.expressions import (
    column_of,
    has_aggregate,
    is_aggregate,
    walk_expression,
    window_kind,
)
from penstock.spark.check.relations import Column, Finding, Relation, WindowKind
from penstock.spark.check.scope import ResolvedColumn, Scope, columns_in
from penstock.spark.check.sql_parse import position_of, sql_of

_GROUPING_SETS = (exp.Cube, exp.Rollup, exp.GroupingSets, exp.Tuple)
UNBOUNDED_ADVICE = "If that is intended, set `unbounded_state: true`"


@dataclass(frozen=True)
class Grouping:
    """The keys that a SELECT groups by."""

    keys: tuple[exp.Expr, ...]
    columns: tuple[Column, ...]
    is_plain: bool
    """False for ROLLUP, CUBE, GROUPING SETS and ALL."""

    @property
    def is_watermarked(self) -> bool:
        return any(column.is_event_time for column in self.columns)

    @property
    def is_session(self) -> bool:
        return any(column.window is WindowKind.SESSION for column in self.columns)


def grouping_of(select: exp.Select, scope: Scope) -> Grouping | None:
    """Returns None if the SELECT does not aggregate. Adds windows of GROUP BY to the scope."""
    group = select.args.get("group")
    if group is None:
        having = select.args.get("having")
        parts = [*select.expressions, *([having] if having is not None else [])]
        if not any(has_aggregate(part) for part in parts):
            return None
        return Grouping((), (), is_plain=True)
    is_plain = not group.args.get("all")
    if group.args.get("all"):
        keys = [
            expression.unalias()
            for expression in select.expressions
            if not has_aggregate(expression)
        ]
    else:
        parts = [part for part in group.iter_expressions() if isinstance(part, exp.Expr)]
        is_plain = not any(isinstance(part, _GROUPING_SETS) for part in parts)
        keys = [_resolve_key(key, select, scope) for part in parts for key in _keys_in(part)]
    columns = [column_of(key, scope) for key in keys]
    for column in columns:
        if column.window is not None:
            scope.group_windows.setdefault(column.window.value, column)
    return Grouping(tuple(keys), tuple(columns), is_plain)


def _keys_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the keys in ROLLUP (…), GROUPING SETS ((…), (…)) and so on."""
    if isinstance(node, _GROUPING_SETS):
        for part in node.expressions:
            yield from _keys_in(part)
    else:
        yield node


def unbounded_message(grouping: Grouping, relation: Relation) -> str:
    """Returns why the aggregation would keep every group forever, and what to do."""
    times = [column.name for column in relation.columns if column.is_event_time]
    windows = [key for key in grouping.keys if window_kind(key) is not None]
    if not times:
        return (
            "state without a watermark: every group would be kept forever. Give the source a "
            f"`watermark` and group by its column, or by a window of it. {UNBOUNDED_ADVICE}"
        )
    if windows:
        over = sql_of(windows[0].expressions[0])
        return (
            f"state without a watermark: the window is over {over}, but the watermark is on "
            f"{times[0]}, so no group is ever dropped. Use window({times[0]}, …). "
            f"{UNBOUNDED_ADVICE}"
        )
    return (
        f"state without a watermark: {times[0]} has one, but no key is {times[0]} or a window of "
        f"it, so every group would be kept forever. Add window({times[0]}, '…') to GROUP BY. "
        f"{UNBOUNDED_ADVICE}"
    )


def refused_aggregates(select: exp.Select, grouping: Grouping) -> list[Finding]:
    """Returns what Spark refuses in an aggregation of a stream."""
    findings: list[Finding] = []
    for part in [*select.expressions, *filter(None, [select.args.get("having")])]:
        for node in walk_expression(part):
            if is_aggregate(node) and isinstance(node.this, exp.Distinct):
                message = (
                    f"{sql_of(node)} is not possible on a stream: use approx_count_distinct(…), "
                    "or deduplicate first"
                )
                findings.append(Finding(*position_of(node), message))
    windows = {key.sql("spark") for key in grouping.keys if window_kind(key) is not None}
    if len(windows) > 1:
        message = "GROUP BY can have only one window: remove the others"
        findings.append(Finding(*position_of(grouping.keys[-1]), message))
    return findings


def ungrouped_columns(select: exp.Select, grouping: Grouping, scope: Scope) -> list[Finding]:
    """Returns a finding for each column that is neither aggregated nor in GROUP BY."""
    if not grouping.is_plain:
        return []
    texts = {_normalize(key) for key in grouping.keys}
    keys = [key for key in (_resolve(key, scope) for key in grouping.keys) if key is not None]
    findings: list[Finding] = []
    for expression in select.expressions:
        for node in _bare_columns(expression, texts):
            column = _resolve(node, scope)
            if column is None or column.item_index is None:
                continue
            if any(_is_covered(column, key) for key in keys):
                continue
            name = sql_of(node)
            message = (
                f"{name} is neither in GROUP BY nor aggregated: add it to GROUP BY, or take one "
                f"of its values, as in max({name})"
            )
            findings.append(Finding(*position_of(node), message))
    return findings


def _bare_columns(node: exp.Expr, keys: set[str]) -> list[exp.Expr]:
    """Returns the columns outside of aggregates and of expressions that are keys as a whole."""
    if isinstance(node, exp.Query | exp.Subquery | exp.Window | exp.Star) or is_aggregate(node):
        return []
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.Lambda | exp.Column) and (
        isinstance(node.this, exp.Star) or not isinstance(node, exp.Column)
    ):
        return []
    if _normalize(node) in keys:
        return []
    if list(columns_in(node)) == [node]:
        return [node]
    return [column for part in node.iter_expressions() for column in _bare_columns(part, keys)]


def _resolve_key(key: exp.Expr, select: exp.Select, scope: Scope) -> exp.Expr:
    """Returns the expression that a key stands for: it may be a number or name in SELECT's list."""
    if isinstance(key, exp.Paren):
        return _resolve_key(key.this, select, scope)
    if isinstance(key, exp.Literal) and not key.is_string:
        number = int(key.this) if str(key.this).isdigit() else 0
        if 0 < number <= len(select.expressions):
            expression: exp.Expr = select.expressions[number - 1].unalias()
            return expression
    if isinstance(key, exp.Column) and not isinstance(scope.find(key), ResolvedColumn):
        target = scope.aliases.get(key.name.lower())
        if target is not None and not key.table:
            return target
    return key


def _resolve(node: exp.Expr, scope: Scope) -> ResolvedColumn | None:
    resolved = scope.find(node)
    return resolved if isinstance(resolved, ResolvedColumn) else None


def _is_covered(column: ResolvedColumn, key: ResolvedColumn) -> bool:
    """Returns whether the key is the column; a key `s` covers its field `s.a`, too."""
    if key.is_whole and column.item_index == key.item_index and not column.is_whole:
        return True
    return column.column.name.lower() == key.column.name.lower() and (
        column.item_index == key.item_index or column.column == key.column
    )


def _normalize(node: exp.Expr) -> str:
    return node.sql("spark", comments=False).lower()
