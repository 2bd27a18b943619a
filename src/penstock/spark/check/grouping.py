"""Aggregations on streams: their keys, whether they can ever end, and what Spark refuses."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from penstock.spark.check.expressions import (
    describe,
    has_aggregate,
    is_aggregate,
    window_kind,
    within,
)
from penstock.spark.check.relations import Column, Finding, Relation, WindowKind
from penstock.spark.check.scope import Found, Scope, columns_in
from penstock.spark.check.sql_parse import place, sql_of

_SETS = (exp.Cube, exp.Rollup, exp.GroupingSets, exp.Tuple)
UNBOUNDED = "If this is meant, say `unbounded_state: true`"


@dataclass(frozen=True)
class Grouping:
    """What a SELECT groups by."""

    keys: tuple[exp.Expr, ...]
    columns: tuple[Column, ...]
    is_plain: bool
    """Not ROLLUP, CUBE, GROUPING SETS or ALL."""

    @property
    def watermarked(self) -> bool:
        return any(each.event_time for each in self.columns)

    @property
    def session(self) -> bool:
        return any(each.window is WindowKind.SESSION for each in self.columns)


def grouping_of(select: exp.Select, scope: Scope) -> Grouping | None:
    """None if the SELECT does not aggregate. Makes `window` known where GROUP BY makes it."""
    group = select.args.get("group")
    if group is None:
        having = select.args.get("having")
        parts = [*select.expressions, *([having] if having is not None else [])]
        if not any(has_aggregate(each) for each in parts):
            return None
        return Grouping((), (), is_plain=True)
    plain = not group.args.get("all")
    if group.args.get("all"):
        keys = [each.unalias() for each in select.expressions if not has_aggregate(each)]
    else:
        parts = [each for each in group.iter_expressions() if isinstance(each, exp.Expr)]
        plain = not any(isinstance(each, _SETS) for each in parts)
        keys = [_meant(each, select, scope) for part in parts for each in _leaves(part)]
    found = [describe(each, scope) for each in keys]
    for each in found:
        if each.window is not None:
            scope.made.setdefault(each.window.value, each)
    return Grouping(tuple(keys), tuple(found), plain)


def _leaves(node: exp.Expr) -> Iterator[exp.Expr]:
    """The keys in ROLLUP (…), GROUPING SETS ((…), (…)) and so on."""
    if isinstance(node, _SETS):
        for each in node.expressions:
            yield from _leaves(each)
    else:
        yield node


def unbounded(grouping: Grouping, relation: Relation) -> str:
    """Why the aggregation would remember every group for ever, and what to do."""
    times = [each.name for each in relation.columns if each.event_time]
    windows = [each for each in grouping.keys if window_kind(each) is not None]
    if not times:
        return (
            "state without a watermark: every group would be kept for ever. Give the source a "
            "`watermark` and group by its column, or by a window of it. " + UNBOUNDED
        )
    if windows:
        over = sql_of(windows[0].expressions[0])
        return (
            f"state without a watermark: the window is over {over}, but the watermark is on "
            f"{times[0]}, so no group is ever dropped. Use window({times[0]}, …). " + UNBOUNDED
        )
    return (
        f"state without a watermark: {times[0]} has one, but no key is {times[0]} or a window of "
        f"it, so every group would be kept for ever. Add window({times[0]}, '…') to GROUP BY. "
        + UNBOUNDED
    )


def refused(select: exp.Select, grouping: Grouping) -> list[Finding]:
    """What Spark refuses in an aggregation of a stream."""
    found: list[Finding] = []
    parts = [*select.expressions, *filter(None, [select.args.get("having")])]
    for part in parts:
        for each in within(part):
            if is_aggregate(each) and isinstance(each.this, exp.Distinct):
                what = sql_of(each)
                found.append(
                    Finding(
                        *place(each),
                        f"{what} is not possible on a stream: use approx_count_distinct(…), or "
                        "deduplicate first",
                    )
                )
    windows = {each.sql("spark") for each in grouping.keys if window_kind(each) is not None}
    if len(windows) > 1:
        found.append(
            Finding(*place(grouping.keys[-1]), "only one window can be in GROUP BY: use one")
        )
    return found


def ungrouped(select: exp.Select, grouping: Grouping, scope: Scope) -> list[Finding]:
    """Columns that are neither aggregated nor in GROUP BY."""
    if not grouping.is_plain:
        return []
    texts = {_text(each) for each in grouping.keys}
    keys = [each for each in (_found(key, scope) for key in grouping.keys) if each is not None]
    found: list[Finding] = []
    for part in select.expressions:
        for node in _bare_columns(part, texts):
            column = _found(node, scope)
            if column is None or column.read is None:
                continue
            if any(_is_same(column, key) for key in keys):
                continue
            name = sql_of(node)
            found.append(
                Finding(
                    *place(node),
                    f"{name} is neither in GROUP BY nor aggregated: add it to GROUP BY, or take "
                    f"one of its values, as in max({name})",
                )
            )
    return found


def _bare_columns(node: exp.Expr, keys: set[str]) -> list[exp.Expr]:
    """Columns outside of aggregates and of whole expressions that are grouped by."""
    if isinstance(node, exp.Query | exp.Subquery | exp.Window | exp.Star) or is_aggregate(node):
        return []
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.Lambda | exp.Column) and (
        isinstance(node.this, exp.Star) or not isinstance(node, exp.Column)
    ):
        return []
    if _text(node) in keys:
        return []
    if list(columns_in(node)) == [node]:
        return [node]
    return [found for each in node.iter_expressions() for found in _bare_columns(each, keys)]


def _meant(key: exp.Expr, select: exp.Select, scope: Scope) -> exp.Expr:
    """What a number or a name of the list of the SELECT stands for."""
    if isinstance(key, exp.Paren):
        return _meant(key.this, select, scope)
    if isinstance(key, exp.Literal) and not key.is_string:
        at = int(key.this) if str(key.this).isdigit() else 0
        if 0 < at <= len(select.expressions):
            listed: exp.Expr = select.expressions[at - 1].unalias()
            return listed
    if isinstance(key, exp.Column) and not isinstance(scope.find(key), Found):
        named = scope.aliases.get(key.name.lower())
        if named is not None and not key.table:
            return named
    return key


def _found(node: exp.Expr, scope: Scope) -> Found | None:
    found = scope.find(node)
    return found if isinstance(found, Found) else None


def _is_same(one: Found, other: Found) -> bool:
    """A key `s` covers `s.a` too."""
    if other.is_whole and one.read == other.read and not one.is_whole:
        return True
    return one.column.name.lower() == other.column.name.lower() and (
        one.read == other.read or one.column == other.column
    )


def _text(node: exp.Expr) -> str:
    return node.sql("spark", comments=False).lower()
