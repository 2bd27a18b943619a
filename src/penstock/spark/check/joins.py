"""Joins that involve streams: which of them Spark refuses, and which keep their state forever."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from penstock.spark.check.relations import Column, Relation
from penstock.spark.check.scope import ResolvedColumn, Scope, columns_in, path_of


class JoinType(Enum):
    INNER = "inner"
    LEFT = "left outer"
    RIGHT = "right outer"
    FULL = "full outer"
    SEMI = "left semi"
    ANTI = "left anti"


def join_type(join: exp.Join) -> JoinType:
    side, kind = join.side.upper(), join.kind.upper()
    if kind in ("SEMI", "ANTI"):
        return JoinType[kind]
    return JoinType[side] if side in JoinType.__members__ else JoinType.INNER


@dataclass(frozen=True)
class JoinCheck:
    """The result of checking a join of two streams."""

    refusal: str | None = None
    """Why Spark would not run it."""
    unbounded: str | None = None
    """Why its state would only grow."""


@dataclass(frozen=True)
class JoinSides:
    """Two streams that are joined; `right_index` is the position of the right one in the scope."""

    scope: Scope
    right_index: int
    left: Relation
    right: Relation

    def resolve(self, node: exp.Expr) -> tuple[ResolvedColumn, bool] | None:
        """Returns the column, and whether it is of the right side; None if it is unknown."""
        resolved = self.scope.find(node)
        if not isinstance(resolved, ResolvedColumn) or resolved.item_index is None:
            return None
        return resolved, resolved.item_index == self.right_index


def table_join_refusal(kind: JoinType, left_streams: bool, right_streams: bool) -> str | None:
    """Returns why Spark refuses this join of a stream and a table, or None."""
    if kind is JoinType.FULL:
        return (
            "a full outer join of a stream and a table is not possible: use "
            "`stream LEFT JOIN table`"
        )
    if kind in (JoinType.LEFT, JoinType.SEMI) and right_streams:
        return (
            f"a {kind.value} join needs the stream on the left side, because Spark can never know "
            "that a row of the table will have no match: swap the sides"
        )
    if kind is JoinType.ANTI and right_streams:
        return "an anti join needs the stream on the left side: swap the sides"
    if kind is JoinType.RIGHT and left_streams:
        return (
            "a right outer join needs the stream on the right side: swap the sides to "
            "`stream LEFT JOIN table`"
        )
    return None


def check_stream_join(
    kind: JoinType, sides: JoinSides, condition: list[exp.Expr], shared: list[tuple[Column, Column]]
) -> JoinCheck:
    """Checks a join of two streams; `shared` are the pairs of columns of USING."""
    if kind is JoinType.ANTI:
        return JoinCheck(refusal="an anti join of two streams is not possible")
    equalities = [pair for part in condition for pair in _equality(part, sides)]
    is_known = all(
        sides.resolve(column) is not None for part in condition for column in columns_in(part)
    )
    if not is_known or not (sides.left.is_complete and sides.right.is_complete):
        return JoinCheck()
    if not equalities and not shared:
        return JoinCheck(
            refusal="two streams are joined without an equality between them, which Spark cannot "
            "do: add `ON left.key = right.key`"
        )
    if any(a.is_event_time or b.is_event_time for a, b in [*equalities, *shared]):
        return JoinCheck()
    bounds_left = _is_bounded(condition, sides, state_is_right=False)
    bounds_right = _is_bounded(condition, sides, state_is_right=True)
    is_possible = {
        JoinType.LEFT: bounds_left is not False,
        JoinType.SEMI: bounds_left is not False,
        JoinType.RIGHT: bounds_right is not False,
        JoinType.FULL: bounds_left is not False or bounds_right is not False,
    }.get(kind, True)
    if not is_possible:
        return JoinCheck(refusal=f"a {kind.value} join of two streams {_requirement(kind, sides)}")
    if bounds_left is False or bounds_right is False:
        return JoinCheck(unbounded=_unbounded_message(sides, is_left=bounds_left is False))
    return JoinCheck()


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yields the parts of a condition that must all be true."""
    if node is None:
        return
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    elif isinstance(node, exp.Paren):
        yield from conjuncts(node.this)
    elif isinstance(node, exp.Between):
        yield exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        yield exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    else:
        yield node


def _equality(node: exp.Expr, sides: JoinSides) -> list[tuple[Column, Column]]:
    """Returns the columns (or expressions) of an equality between both sides, as one pair."""
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return []
    operands = [_side_of(operand, sides) for operand in (node.left, node.right)]
    if {side for _, side in operands} != {False, True}:
        return []
    (first, _), (second, _) = operands
    return [(first, second)]


def _side_of(node: exp.Expr, sides: JoinSides) -> tuple[Column, bool | None]:
    """Returns the column if the node is one, and the side that all columns of it belong to."""
    columns = [sides.resolve(column) for column in columns_in(node)]
    column_sides = {column[1] for column in columns if column is not None}
    side = column_sides.pop() if len(column_sides) == 1 and None not in columns else None
    bare = columns[0] if path_of(node) and columns else None
    return (bare[0].column if bare is not None and bare[0].is_whole else Column("")), side


def _is_bounded(
    condition: list[exp.Expr], sides: JoinSides, *, state_is_right: bool
) -> bool | None:
    """Returns whether the event time of the other side bounds the time of one side from below.

    Only then can rows of the side be dropped when the other side's watermark passes. None: unknown.
    """
    is_unsure = False
    for comparison in condition:
        if isinstance(comparison, exp.LT | exp.LTE):
            smaller, larger = comparison.left, comparison.right
        elif isinstance(comparison, exp.GT | exp.GTE):
            smaller, larger = comparison.right, comparison.left
        else:
            continue
        terms = [*_terms(smaller, 1), *_terms(larger, -1)]
        columns = [(sides.resolve(node), sign) for node, sign in terms if node is not None]
        if any(node is None for node, _ in terms) or any(column is None for column, _ in columns):
            is_unsure = True
            continue
        own = [(column, sign) for column, sign in columns if column and column[1] == state_is_right]
        other = [
            (column, sign) for column, sign in columns if column and column[1] != state_is_right
        ]
        if len(own) != 1 or len(other) != 1 or own[0][1] != -1:
            continue
        if other[0][0][0].column.is_event_time:
            return True
    return None if is_unsure else False


def _terms(node: exp.Expr, sign: int) -> Iterator[tuple[exp.Expr | None, int]]:
    """Yields the columns of a sum with their signs; None for a part that is not understood."""
    if path_of(node):
        yield node, sign
    elif isinstance(node, exp.Add):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, sign)
    elif isinstance(node, exp.Sub):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, -sign)
    elif isinstance(node, exp.Paren | exp.Cast):
        yield from _terms(node.this, sign)
    elif not isinstance(node, exp.Interval | exp.Literal):
        yield None, sign


def _requirement(kind: JoinType, sides: JoinSides) -> str:
    side, other = ("left", sides.left) if kind is JoinType.RIGHT else ("right", sides.right)
    if not other.has_watermark:
        return (
            f"needs a watermark on the {side} side, because without it no row is ever known to "
            "have no match. Give its source (or step) a `watermark`, and bound the time in ON"
        )
    time = next(column.name for column in other.columns if column.is_event_time)
    return (
        "needs a bound on the time in ON, because without it no row is ever known to have no "
        f"match: compare its times with {time}, as in `AND l.at >= r.{time} - INTERVAL 1 HOUR AND "
        f"l.at <= r.{time} + INTERVAL 1 HOUR`"
    )


def _unbounded_message(sides: JoinSides, *, is_left: bool) -> str:
    without_watermark = [
        name
        for name, side in (("left", sides.left), ("right", sides.right))
        if not side.has_watermark
    ]
    if without_watermark:
        return (
            "a join of two streams without a watermark on the "
            f"{' and '.join(without_watermark)} side keeps all rows forever: give its source (or "
            "step) a `watermark`, and bound the time in ON"
        )
    side = "left" if is_left else "right"
    return (
        f"a join of two streams keeps the rows of the {side} side forever, because no condition "
        "bounds their time: add one to ON, as in `AND l.at BETWEEN r.at - INTERVAL 1 HOUR AND "
        "r.at + INTERVAL 1 HOUR`, with the columns of the watermarks"
    )
