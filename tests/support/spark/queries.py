"""Streaming queries of tests: what their batches held, waited for without looking at the clock."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery


class Batches:
    """The rows of each batch of a query that had any, in order."""

    def __init__(self) -> None:
        self.found: list[list[Row]] = []
        self._changed = threading.Condition()

    def take(self, frame: "DataFrame", batch_id: int) -> None:
        """For foreachBatch."""
        rows = frame.collect()
        with self._changed:
            if rows:
                self.found.append(rows)
            self._changed.notify_all()

    def rows(self) -> "list[Row]":
        return [row for batch in self.found for row in batch]

    def wait_for(self, enough: "Callable[[list[Row]], bool]", seconds: float = 60) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self.rows()), seconds):
                raise TimeoutError(f"not enough rows after {seconds} s: {self.rows()}")


def run_once(frame: "DataFrame", checkpoint: Path) -> tuple[Batches, "StreamingQuery"]:
    """Reads what is there (`Trigger.AvailableNow`) and ends; raises what the query failed with."""
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
    """A query that runs for as long as the block."""
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
