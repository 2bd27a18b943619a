"""Properties of SQL expressions: their type if it is certain, event time, aggregates, windows."""

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from penstock.spark.check.durations import parse_duration
from penstock.spark.check.functions import AGGREGATES
from penstock.spark.check.relations import TIMESTAMP, WINDOW, Column, WindowKind, parse_type
from penstock.spark.check.scope import ResolvedColumn, Scope, path_of
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
_WINDOW_KINDS = {kind.value: kind for kind in WindowKind}


def function_name(node: exp.Expr) -> str:
    """Returns the name of a called function that sqlglot has no class for, else an empty text."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def window_kind(node: exp.Expr) -> WindowKind | None:
    """Returns the kind of window that a call of `window` or `session_window` makes."""
    return _WINDOW_KINDS.get(function_name(node))


def window_problem(node: exp.Expr) -> str | None:
    """Returns what is wrong with the durations of a window."""
    if window_kind(node) is None:
        return None
    arguments = node.expressions[1:3]
    texts = [str(arg.this) for arg in arguments if isinstance(arg, exp.Literal) and arg.is_string]
    if len(texts) < len(arguments) or any(text.lower().startswith("interval") for text in texts):
        return None
    try:
        durations = [parse_duration(text) for text in texts]
    except ValueError as error:
        return str(error)
    if durations and not durations[0]:
        return f"a window of {texts[0]!r} has no length"
    if len(durations) > 1 and not 0 < durations[1] <= durations[0]:
        return (
            f"windows of {texts[0]!r} cannot begin every {texts[1]!r}, because rows would be left "
            "out: make the second duration the shorter one"
        )
    return None


def is_aggregate(node: exp.Expr) -> bool:
    """Returns whether the node itself is a call of an aggregate function."""
    if isinstance(node, exp.AggFunc):
        return not isinstance(node, _WINDOW_ONLY)
    if isinstance(node, exp.Any):
        return not isinstance(node.parent, exp.Binary)
    return function_name(node) in AGGREGATES


def walk_expression(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields an expression and all its parts, but not the subqueries in it."""
    yield node
    for part in node.iter_expressions():
        if not isinstance(part, exp.Query | exp.Subquery):
            yield from walk_expression(part)


def has_aggregate(node: exp.Expr) -> bool:
    """Returns whether the expression aggregates; `sum(x) OVER …` does not."""
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        return any(has_aggregate(part) for part in node.this.iter_expressions())
    return is_aggregate(node) or any(has_aggregate(part) for part in node.iter_expressions())


def column_of(node: exp.Expr, scope: Scope, *, aliases: bool = False) -> Column:
    """Returns the column that an expression makes, as far as it is known."""
    if isinstance(node, exp.Alias):
        return replace(column_of(node.this, scope, aliases=aliases), name=node.alias)
    if isinstance(node, exp.Paren):
        return column_of(node.this, scope, aliases=aliases)
    path = path_of(node)
    if path:
        return _column_at(node, path, scope, aliases=aliases)
    kind = window_kind(node)
    if kind is not None and node.expressions:
        time = column_of(node.expressions[0], scope, aliases=aliases)
        return Column(kind.value, WINDOW, time.is_event_time, kind)
    if function_name(node) == "window_time" and node.expressions:
        window = column_of(node.expressions[0], scope, aliases=aliases)
        return Column("", TIMESTAMP, window.is_event_time)
    return Column("", _type(node, scope))


def _column_at(
    node: exp.Expr, path: list[exp.Identifier], scope: Scope, *, aliases: bool
) -> Column:
    resolved = scope.find(node, aliases=aliases)
    if isinstance(resolved, ResolvedColumn):
        return replace(resolved.column, name=path[-1].name)
    target = scope.aliases.get(path[0].name.lower()) if aliases and len(path) == 1 else None
    if target is not None and not (isinstance(target, exp.Column) and target.name == path[0].name):
        return replace(column_of(target, scope), name=path[0].name)
    return Column(path[-1].name)


def _type(node: exp.Expr, scope: Scope) -> DataType | None:
    if isinstance(node, exp.Cast):
        # sqlglot writes Spark's TIME as a timestamp.
        return None if node.to.is_type("time") else parse_type(node.to.sql("spark"))
    if isinstance(node, _SAME_TYPE) and isinstance(node.this, exp.Expr):
        return column_of(node.this, scope).type
    if isinstance(node, _TIMESTAMP_NODES) or function_name(node) in _TIMESTAMP_NAMES:
        return TIMESTAMP
    if isinstance(node, exp.Count):
        return Scalar("bigint")
    return None
