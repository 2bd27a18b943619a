"""Streaming queries of tests, and the rows of their batches, without time-based waits."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery


class Batches:
    """The rows of each non-empty batch of a query, in order."""

    def __init__(self) -> None:
        self.non_empty: list[list[Row]] = []
        self._changed = threading.Condition()

    def take(self, frame: "DataFrame", batch_id: int) -> None:
        """The callback for foreachBatch."""
        rows = frame.collect()
        with self._changed:
            if rows:
                self.non_empty.append(rows)
            self._changed.notify_all()

    def rows(self) -> "list[Row]":
        return [row for batch in self.non_empty for row in batch]

    def wait_for(self, enough: "Callable[[list[Row]], bool]", seconds: float = 60) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self.rows()), seconds):
                raise TimeoutError(f"not enough rows after {seconds} s: {self.rows()}")


def run_once(frame: "DataFrame", checkpoint: Path) -> tuple[Batches, "StreamingQuery"]:
    """Runs a query with `Trigger.AvailableNow`; raises the error of the query."""
    batches = Batches()
    query = (
        frame.writeStream.foreachBatch(batches.take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return batches, query


@contextmanager
def running(frame: "DataFrame", checkpoint: Path) -> Iterator[Batches]:
    """Runs a query during the block."""
    batches = Batches()
    query = (
        frame.writeStream.foreachBatch(batches.take)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        yield batches
        failure = query.exception()
        if failure is not None:
            raise failure
    finally:
        query.stop()
