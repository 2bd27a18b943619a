"""Joins that involve streams: what Spark refuses, and what would keep its state for ever."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from penstock.spark.check.relations import Column, Relation
from penstock.spark.check.scope import Found, Scope, columns_in, path_of


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
class JoinVerdict:
    """What comes of a join of two streams."""

    refused: str | None = None
    """Why Spark would not run it."""
    unbounded: str | None = None
    """Why its state would only grow."""


@dataclass(frozen=True)
class Sides:
    """Two streams that are joined: where the right one is in the scope, and what each has."""

    scope: Scope
    right_at: int
    left: Relation
    right: Relation

    def left_or_right(self, node: exp.Expr) -> tuple[Found, bool] | None:
        """The column, and whether it is the right side's."""
        found = self.scope.find(node)
        if not isinstance(found, Found) or found.read is None:
            return None
        return found, found.read == self.right_at


def refused_with_table(kind: JoinType, left_streams: bool, right_streams: bool) -> str | None:
    """Why a stream and a table cannot be joined so; one of the two is a table."""
    if kind is JoinType.FULL:
        return "a full outer join of a stream and a table is not possible"
    if kind in (JoinType.LEFT, JoinType.SEMI) and right_streams:
        return (
            f"a {kind.value} join needs the stream on the left side: here the table is there, "
            "and Spark could never know that no row will match"
        )
    if kind is JoinType.ANTI and right_streams:
        return "an anti join needs the stream on the left side"
    if kind is JoinType.RIGHT and left_streams:
        return (
            "a right outer join needs the stream on the right side: turn it round to "
            "`stream LEFT JOIN table`"
        )
    return None


def judge_streams(
    kind: JoinType, sides: Sides, condition: list[exp.Expr], shared: list[tuple[Column, Column]]
) -> JoinVerdict:
    """A join of two streams; `shared` are the columns of USING."""
    if kind is JoinType.ANTI:
        return JoinVerdict(refused="an anti join of two streams is not possible")
    equal = [pair for each in condition for pair in _equal(each, sides)]
    known = all(
        sides.left_or_right(column) is not None for each in condition for column in columns_in(each)
    )
    if not known or not (sides.left.complete and sides.right.complete):
        return JoinVerdict()
    if not equal and not shared:
        return JoinVerdict(
            refused="two streams are joined without an equality between them, which Spark cannot "
            "do: add `ON left.key = right.key`"
        )
    if any(a.event_time or b.event_time for a, b in [*equal, *shared]):
        return JoinVerdict()
    for_left = _bounded(condition, sides, state_is_right=False)
    for_right = _bounded(condition, sides, state_is_right=True)
    enough = {
        JoinType.LEFT: for_left is not False,
        JoinType.SEMI: for_left is not False,
        JoinType.RIGHT: for_right is not False,
        JoinType.FULL: for_left is not False or for_right is not False,
    }.get(kind, True)
    if not enough:
        return JoinVerdict(refused=f"a {kind.value} join of two streams {_needed(kind, sides)}")
    if for_left is False or for_right is False:
        return JoinVerdict(unbounded=_unbounded(sides, left=for_left is False))
    return JoinVerdict()


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of a condition that must all hold."""
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


def _equal(node: exp.Expr, sides: Sides) -> list[tuple[Column, Column]]:
    """The two columns (or expressions) of an equality between both sides."""
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return []
    found = [_side_of(each, sides) for each in (node.left, node.right)]
    if {side for _, side in found} != {False, True}:
        return []
    (first, _), (second, _) = found
    return [(first, second)]


def _side_of(node: exp.Expr, sides: Sides) -> tuple[Column, bool | None]:
    """The column, if it is a bare one, and which side all columns of the expression are of."""
    found = [sides.left_or_right(each) for each in columns_in(node)]
    places = {each[1] for each in found if each is not None}
    side = places.pop() if len(places) == 1 and None not in found else None
    bare = found[0] if path_of(node) and found else None
    return (bare[0].column if bare is not None and bare[0].is_whole else Column("")), side


def _bounded(condition: list[exp.Expr], sides: Sides, *, state_is_right: bool) -> bool | None:
    """Whether the time of one side is bounded from below by the event time of the other.

    Only then rows of that side can be dropped once the watermark of the other has passed. None: it
    cannot be told.
    """
    unsure = False
    for each in condition:
        if isinstance(each, exp.LT | exp.LTE):
            smaller, larger = each.left, each.right
        elif isinstance(each, exp.GT | exp.GTE):
            smaller, larger = each.right, each.left
        else:
            continue
        terms = [*_terms(smaller, 1), *_terms(larger, -1)]
        columns = [(sides.left_or_right(node), sign) for node, sign in terms if node is not None]
        if any(node is None for node, _ in terms) or any(found is None for found, _ in columns):
            unsure = True
            continue
        states = [(found, sign) for found, sign in columns if found and found[1] == state_is_right]
        others = [(found, sign) for found, sign in columns if found and found[1] != state_is_right]
        if len(states) != 1 or len(others) != 1 or states[0][1] != -1:
            continue
        if others[0][0][0].column.event_time:
            return True
    return None if unsure else False


def _terms(node: exp.Expr, sign: int) -> Iterator[tuple[exp.Expr | None, int]]:
    """The columns of a sum with their signs; None for what cannot be looked into."""
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


def _needed(kind: JoinType, sides: Sides) -> str:
    other = {JoinType.RIGHT: sides.left}.get(kind, sides.right)
    which = "left" if kind is JoinType.RIGHT else "right"
    if not other.has_watermark:
        return (
            f"needs a watermark on the {which} side: without it no row can ever be said to have "
            "no match. Give its source (or step) a `watermark`, and bound the time in ON"
        )
    time = next(each.name for each in other.columns if each.event_time)
    return (
        f"needs a bound on the time in ON, or no row can ever be said to have no match: compare "
        f"its times with {time}, as in `AND l.at >= r.{time} - INTERVAL 1 HOUR AND l.at <= "
        f"r.{time} + INTERVAL 1 HOUR`"
    )


def _unbounded(sides: Sides, *, left: bool) -> str:
    bare = [
        name
        for name, side in (("left", sides.left), ("right", sides.right))
        if not side.has_watermark
    ]
    if bare:
        on = " and ".join(bare)
        return (
            f"a join of two streams without a watermark on the {on} side keeps all rows for ever: "
            "give its source (or step) a `watermark`, and bound the time in ON"
        )
    which = "left" if left else "right"
    return (
        f"a join of two streams keeps the rows of the {which} side for ever, because no condition "
        "bounds their time: add one to ON, as in `AND l.at BETWEEN r.at - INTERVAL 1 HOUR AND "
        "r.at + INTERVAL 1 HOUR`, with the columns of the watermarks"
    )
