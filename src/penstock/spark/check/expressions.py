"""What expressions are: their types where these are sure, event time, aggregates, windows."""

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from penstock.spark.check.durations import seconds
from penstock.spark.check.functions import AGGREGATES
from penstock.spark.check.relations import Column, WindowKind
from penstock.spark.check.scope import Found, Scope, path_of
from penstock.spark.check.types import TIMESTAMP, WINDOW, parse_type
from penstock.spark.decode.datatypes import DataType, Scalar

_WINDOW_ONLY = (
    exp.CumeDist, exp.DenseRank, exp.Lag, exp.Lead, exp.NthValue, exp.Ntile, exp.PercentRank,
    exp.Rank, exp.RowNumber,
)  # fmt: skip
_SAME_TYPE = (exp.Max, exp.Min, exp.First, exp.Last, exp.AnyValue)
_TIMESTAMP_NODES = (exp.CurrentTimestamp, exp.TimestampTrunc, exp.StrToTime)
_TIMESTAMP_NAMES = frozenset(
    ["timestamp_seconds", "timestamp_millis", "timestamp_micros", "to_timestamp", "now"]
)
_WINDOWS = {each.value: each for each in WindowKind}


def function_name(node: exp.Expr) -> str:
    """Of a call that sqlglot has no class for; else nothing."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def window_kind(node: exp.Expr) -> WindowKind | None:
    """Whether it is a call of `window` or `session_window`."""
    return _WINDOWS.get(function_name(node))


def window_problem(node: exp.Expr) -> str | None:
    """What is wrong with the spans of time of a window."""
    if window_kind(node) is None:
        return None
    given = node.expressions[1:3]
    texts = [str(each.this) for each in given if isinstance(each, exp.Literal) and each.is_string]
    if len(texts) < len(given) or any(each.lower().startswith("interval") for each in texts):
        return None
    try:
        spans = [seconds(each) for each in texts]
    except ValueError as error:
        return str(error)
    if spans and not spans[0]:
        return f"a window of {texts[0]!r} has no length"
    if len(spans) > 1 and not 0 < spans[1] <= spans[0]:
        return f"windows of {texts[0]!r} cannot begin every {texts[1]!r}: rows would be left out"
    return None


def is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.AggFunc):
        return not isinstance(node, _WINDOW_ONLY)
    if isinstance(node, exp.Any):
        return not isinstance(node.parent, exp.Binary)
    return function_name(node) in AGGREGATES


def within(node: exp.Expr) -> Iterator[exp.Expr]:
    """An expression and all its parts, but not the queries within it."""
    yield node
    for each in node.iter_expressions():
        if not isinstance(each, exp.Query | exp.Subquery):
            yield from within(each)


def has_aggregate(node: exp.Expr) -> bool:
    """Whether it aggregates; `sum(x) OVER …` does not."""
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        return any(has_aggregate(each) for each in node.this.iter_expressions())
    return is_aggregate(node) or any(has_aggregate(each) for each in node.iter_expressions())


def describe(node: exp.Expr, scope: Scope, *, aliases: bool = False) -> Column:
    """The column that this expression gives, as far as it is known."""
    if isinstance(node, exp.Alias):
        return replace(describe(node.this, scope, aliases=aliases), name=node.alias)
    if isinstance(node, exp.Paren):
        return describe(node.this, scope, aliases=aliases)
    path = path_of(node)
    if path:
        return _of_path(node, path, scope, aliases=aliases)
    kind = window_kind(node)
    if kind is not None and node.expressions:
        time = describe(node.expressions[0], scope, aliases=aliases)
        return Column(kind.value, WINDOW, time.event_time, kind)
    if function_name(node) == "window_time" and node.expressions:
        window = describe(node.expressions[0], scope, aliases=aliases)
        return Column("", TIMESTAMP, window.event_time)
    return Column("", _type(node, scope))


def _of_path(node: exp.Expr, path: list[exp.Identifier], scope: Scope, *, aliases: bool) -> Column:
    found = scope.find(node, aliases=aliases)
    if isinstance(found, Found):
        return replace(found.column, name=path[-1].name)
    target = scope.aliases.get(path[0].name.lower()) if aliases and len(path) == 1 else None
    if target is not None and not (isinstance(target, exp.Column) and target.name == path[0].name):
        return replace(describe(target, scope), name=path[0].name)
    return Column(path[-1].name)


def _type(node: exp.Expr, scope: Scope) -> DataType | None:
    if isinstance(node, exp.Cast):
        # sqlglot writes Spark's TIME as a timestamp.
        return None if node.to.is_type("time") else parse_type(node.to.sql("spark"))
    if isinstance(node, _SAME_TYPE) and isinstance(node.this, exp.Expr):
        return describe(node.this, scope).type
    if isinstance(node, _TIMESTAMP_NODES) or function_name(node) in _TIMESTAMP_NAMES:
        return TIMESTAMP
    if isinstance(node, exp.Count):
        return Scalar("bigint")
    return None
