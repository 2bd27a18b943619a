"""What is known of a view without running it: its columns, and the state that a query of it keeps.

Whatever cannot be known for sure is said to be unknown, and nothing is concluded from it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock.spark.decode.datatypes import DataType


class WindowKind(Enum):
    """How a column of windows was made."""

    TIME = "window"
    SESSION = "session_window"


@dataclass(frozen=True)
class Column:
    name: str
    """Empty: a name that Spark makes up, such as `count(1)`, which is no identifier."""
    type: DataType | None = None
    """None: unknown."""
    event_time: bool = False
    """Whether the watermark is on it, or on what its windows were made of."""
    window: WindowKind | None = None


class StateKind(Enum):
    AGGREGATION = "aggregation"
    DISTINCT = "DISTINCT"
    JOIN = "join of two streams"
    DEDUPLICATION = "deduplication"
    LIMIT = "LIMIT"


@dataclass(frozen=True)
class State:
    """An operation of a streaming query that remembers something from batch to batch."""

    kind: StateKind
    step: str
    line: int | None = None
    keys: tuple[str, ...] = ()
    bounded: bool = True
    """Whether what it remembers is dropped once the watermark has passed it."""
    watermarked: bool = True
    """Whether the watermark tells when a row of it is final."""
    session: bool = False
    outer: bool = False
    after_aggregation: bool = False
    """Whether it works on what an aggregation has made."""

    @property
    def is_aggregation(self) -> bool:
        return self.kind in (StateKind.AGGREGATION, StateKind.DISTINCT)


@dataclass(frozen=True)
class Relation:
    """A view, or what a part of a query gives."""

    columns: tuple[Column, ...] = ()
    complete: bool = True
    """Whether there are no other columns than these."""
    streaming: bool | None = True
    """None: unknown."""
    states: tuple[State, ...] = ()
    opaque: bool = False
    """Whether there may be more state than `states` says: a Python function is part of it."""
    sources: frozenset[str] = frozenset()
    """All views that it is made of, itself included if it is one."""

    def find(self, name: str) -> list[Column]:
        """The columns of this name; Spark does not tell capitals from small letters."""
        wanted = name.lower()
        return [each for each in self.columns if each.name.lower() == wanted]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.columns if each.name]

    @property
    def has_watermark(self) -> bool:
        return any(each.event_time for each in self.columns)

    @property
    def aggregated(self) -> bool:
        return any(each.is_aggregation for each in self.states)

    def with_state(self, state: State) -> "Relation":
        """The same, after one more operation."""
        placed = replace(state, after_aggregation=self.aggregated)
        return replace(self, states=(*self.states, placed))


UNKNOWN = Relation(complete=False, streaming=None, opaque=True)


def any_streaming(relations: Iterable[Relation]) -> bool | None:
    """Whether what reads all of them is a stream."""
    found = [each.streaming for each in relations]
    if True in found:
        return True
    return None if None in found else False


def combined(relations: Sequence[Relation], columns: Iterable[Column] = ()) -> Relation:
    """What a query that reads all of them begins with."""
    states: list[State] = []
    for each in relations:
        states += [one for one in each.states if one not in states]
    return Relation(
        columns=tuple(columns),
        complete=all(each.complete for each in relations),
        streaming=any_streaming(relations),
        states=tuple(states),
        opaque=any(each.opaque for each in relations),
        sources=frozenset().union(*(each.sources for each in relations)),
    )


@dataclass(frozen=True, order=True)
class Finding:
    """Something wrong in a statement. Lines and columns count from 1, within the statement."""

    line: int
    column: int | None
    message: str
