"""What is known of a view without running it: its columns, and the state that its query keeps.

Whatever is not certain counts as unknown, and nothing is concluded from it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock.spark.decode.datatypes import DataType, Field, Scalar, StructOf
from penstock.spark.decode.ddl import parse_ddl
from penstock.spark.errors import OptionError

TIMESTAMP = Scalar("timestamp")
WINDOW = StructOf((Field("start", TIMESTAMP), Field("end", TIMESTAMP)))


class WindowKind(Enum):
    """The function that made a column of windows."""

    TIME = "window"
    SESSION = "session_window"


@dataclass(frozen=True)
class Column:
    """A column of a view or of a part of a query."""

    name: str
    """Empty for a name that Spark generates, such as `count(1)`, which is no identifier."""
    type: DataType | None = None
    """None: unknown."""
    is_event_time: bool = False
    """Whether the watermark is on it, or on the column that its windows were made of."""
    window: WindowKind | None = None


class StateKind(Enum):
    """An operation that keeps state."""

    AGGREGATION = "aggregation"
    DISTINCT = "DISTINCT"
    JOIN = "join of two streams"
    DEDUPLICATION = "deduplication"
    LIMIT = "LIMIT"


@dataclass(frozen=True)
class State:
    """The state that an operation of a streaming query keeps from batch to batch."""

    kind: StateKind
    step: str
    line: int | None = None
    keys: tuple[str, ...] = ()
    is_bounded: bool = True
    """Whether the state is dropped once the watermark has passed it."""
    is_watermarked: bool = True
    """Whether the watermark determines when a row is final."""
    is_session: bool = False
    is_outer_join: bool = False
    follows_aggregation: bool = False
    """Whether the operation reads the result of an aggregation."""

    @property
    def is_aggregation(self) -> bool:
        return self.kind in (StateKind.AGGREGATION, StateKind.DISTINCT)


@dataclass(frozen=True)
class Relation:
    """A view, or the result of a part of a query."""

    columns: tuple[Column, ...] = ()
    is_complete: bool = True
    """Whether it has no other columns than these."""
    is_streaming: bool | None = True
    """None: unknown."""
    states: tuple[State, ...] = ()
    is_opaque: bool = False
    """Whether there may be more state than `states` lists, because of a Python function."""
    sources: frozenset[str] = frozenset()
    """All views that it is made of, including itself if it is one."""

    def find(self, name: str) -> list[Column]:
        """Returns the columns of this name; like Spark, it ignores case."""
        lower_name = name.lower()
        return [column for column in self.columns if column.name.lower() == lower_name]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns if column.name]

    @property
    def has_watermark(self) -> bool:
        return any(column.is_event_time for column in self.columns)

    @property
    def is_aggregated(self) -> bool:
        return any(state.is_aggregation for state in self.states)

    def with_state(self, state: State) -> "Relation":
        """Returns the relation after one more operation."""
        state = replace(state, follows_aggregation=self.is_aggregated)
        return replace(self, states=(*self.states, state))


UNKNOWN = Relation(is_complete=False, is_streaming=None, is_opaque=True)


def combine(relations: Sequence[Relation], columns: Iterable[Column] = ()) -> Relation:
    """Returns the relation that a query starts with when it reads all of these."""
    states = dict.fromkeys(state for relation in relations for state in relation.states)
    streaming = [relation.is_streaming for relation in relations]
    return Relation(
        columns=tuple(columns),
        is_complete=all(relation.is_complete for relation in relations),
        is_streaming=True if True in streaming else None if None in streaming else False,
        states=tuple(states),
        is_opaque=any(relation.is_opaque for relation in relations),
        sources=frozenset().union(*(relation.sources for relation in relations)),
    )


@dataclass(frozen=True, order=True)
class Finding:
    """A mistake in a SQL statement. Lines and columns count from 1, within the statement."""

    line: int
    column: int | None
    message: str


def parse_type(text: str) -> DataType | None:
    """Returns the type of this name, or None for one that only Spark knows."""
    try:
        return parse_ddl(f"x {text}")[0].type
    except OptionError:
        return None


def is_time(data_type: DataType) -> bool:
    """Returns whether a column of this type can have a watermark."""
    return isinstance(data_type, Scalar) and data_type.name in ("timestamp", "timestamp_ntz")
