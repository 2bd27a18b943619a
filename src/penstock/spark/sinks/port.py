"""The interface of a sink: it stores rows and, in the same transaction, the query's progress.

A sink belongs to one query of a pipeline, named by its key `<pipeline>.<sink>`. Whatever a sink
writes to needs two abilities: an atomic commit of rows together with a few hundred bytes of
progress, and the refusal of commits by an owner that another one has replaced.
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
"""Returns the unreadable records of the batch that the sink must store; None if there are none.

Spark counts them while the plan of the rows runs, so a sink calls this once, after the plan has run
and before it commits. If it raises (too many of them), nothing of the batch may be stored.
"""


@dataclass(frozen=True)
class WriteResult:
    """The numbers of rows and dead letters that a batch has stored."""

    rows: int
    dead_letters: int = 0


class Sink(ABC):
    """The sink of one query. Used by one driver, from one thread."""

    takes_dead_letters: bool = False
    """Whether `write` stores dead letters in the same transaction as the rows."""

    @abstractmethod
    def open(self, owner: str) -> StoredProgress | None:
        """Takes the query over and returns its progress; None if it has never run.

        From now on every other owner gets `FencedError`. A transaction that another owner has open
        is either committed and included in the returned progress, or it never will be committed.
        """

    @abstractmethod
    def begin_at(self, start: Progress) -> None:
        """Stores the start offsets of a query that has never run, before its first batch."""

    @abstractmethod
    def write(
        self, rows: "DataFrame", batch: Batch, dead_letters: "DeadLetters | None" = None
    ) -> WriteResult:
        """Stores rows, dead letters and `batch.end` in one transaction.

        Runs the plan of `rows` exactly once, then calls `dead_letters`, then commits. It calls
        `dead_letters` also if `takes_dead_letters` is false: it then returns None, and may raise.
        Raises `FencedError` if another owner has taken the query over.
        """

    @abstractmethod
    def clear(self) -> None:
        """Removes results, their dead letters and the progress, in one transaction (`rebuild`)."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections. The query keeps its owner until another driver takes it over."""
