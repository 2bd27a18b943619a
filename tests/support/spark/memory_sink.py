"""A sink that stores rows in a Python object, for tests of the runner."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.errors import FencedError, PipelineError
from penstock.spark.progress import Batch, Progress, StoredProgress
from penstock.spark.sinks.port import DeadLetters, Sink, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, object]


@dataclass
class Memory:
    """The results and the progress of one query, which outlive sinks."""

    rows: list[Row] = field(default_factory=list)
    dead_letters: list[Row] = field(default_factory=list)
    stored: StoredProgress | None = None
    owner: str = ""
    batches: list[Batch] = field(default_factory=list)


class MemorySink(Sink):
    """Stores rows in a `Memory`; with `key` columns as an upsert."""

    def __init__(
        self, memory: Memory, *, key: tuple[str, ...] = (), takes_dead_letters: bool = True
    ) -> None:
        self.takes_dead_letters = takes_dead_letters
        self._memory = memory
        self._key = key
        self._owner = ""

    def open(self, owner: str) -> StoredProgress | None:
        self._owner = self._memory.owner = owner
        return self._memory.stored

    def begin_at(self, start: Progress) -> None:
        self._check()
        if self._memory.stored is not None:
            raise PipelineError("it has begun already")
        self._memory.stored = StoredProgress(start)

    def write(
        self, rows: "DataFrame", batch: Batch, dead_letters: "DeadLetters | None" = None
    ) -> WriteResult:
        result: list[Row] = rows.toArrow().to_pylist()
        letters = None if dead_letters is None else dead_letters()
        bad: list[Row] = [] if letters is None else letters.to_pylist()
        self._check()
        memory = self._memory
        for row in result:
            if self._key:
                same = tuple(row[column] for column in self._key)
                memory.rows = [
                    row for row in memory.rows if tuple(row[column] for column in self._key) != same
                ]
            memory.rows.append(row)
        memory.dead_letters += bad
        memory.stored = StoredProgress(batch.end, batch.query_id, batch.batch_id)
        memory.batches.append(batch)
        return WriteResult(len(result), len(bad))

    def clear(self) -> None:
        self._check()
        self._memory.rows = []
        self._memory.dead_letters = []
        self._memory.stored = None

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if self._memory.owner != self._owner:
            raise FencedError(f"{self._memory.owner} has taken the query over")
