"""The port of every sink: a place that keeps rows and, in the same transaction, how far we are.

A sink belongs to one query of a pipeline, named by its key `<pipeline>.<sink>`. What a new kind of
sink (a table format, say) must bring is an atomic commit of rows and a few hundred bytes of
progress, and a way to refuse the commit of an owner that another has replaced.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from penstock.spark.progress import Batch, Progress, StoredProgress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


DeadLetters: TypeAlias = "Callable[[], pa.Table | None]"
"""Looks for records of the batch that could not be read; None if there are none.

Only after the plan of the rows has run is it known whether there are any: Spark counts them on the
way. So a sink calls this once, when the plan has run and before it commits. What it raises (too
many of them) ends the batch: nothing of it may be stored then.
"""


@dataclass(frozen=True)
class WriteResult:
    """What a batch has stored."""

    rows: int
    dead_letters: int = 0


class Sink(ABC):
    """Used by one driver, from one thread."""

    takes_dead_letters: bool = False
    """Whether `write` stores dead letters in the same transaction as the rows."""

    @abstractmethod
    def open(self, owner: str) -> StoredProgress | None:
        """Take the query over and say how far it is; None if it has never run.

        From here on every other owner is refused with `FencedError`, also one that is in the
        middle of a transaction: either that is committed, and counted here, or it never will be.
        """

    @abstractmethod
    def begin_at(self, start: Progress) -> None:
        """Store where a query that has never run begins, before its first batch."""

    @abstractmethod
    def write(
        self, rows: "DataFrame", batch: Batch, dead_letters: "DeadLetters | None" = None
    ) -> WriteResult:
        """Store rows, dead letters and `batch.end` in one transaction. `FencedError` if replaced.

        Runs the plan of `rows` exactly once, then calls `dead_letters` (also where
        `takes_dead_letters` is false: it gives None there, and may raise), then commits.
        """

    @abstractmethod
    def clear(self) -> None:
        """Results, their dead letters and progress are gone, in one transaction (`rebuild`)."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections. The query stays owned until another driver takes it."""
