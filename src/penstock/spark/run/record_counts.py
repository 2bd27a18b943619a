"""What Spark has counted while it ran the plan of a batch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_PREFIX = "penstock_records_"


@dataclass(frozen=True)
class RecordCounts:
    """Of one source. A task that ran twice may be counted twice: only zero is exact."""

    records: int
    bad: int


def count_records(frame: "DataFrame", source: str) -> "DataFrame":
    """The same rows, decoded ones, counted on their way."""
    from pyspark.sql import functions as sql

    return frame.observe(
        f"{_PREFIX}{source}",
        sql.count(sql.lit(1)).alias("records"),
        sql.count(sql.when(sql.col("_error").isNotNull(), 1)).alias("bad"),
    )


def read_counts(query: "StreamingQuery", source: str) -> RecordCounts | None:
    """Of the batch at hand, whose plan has run; None where Spark left that part of it out."""
    execution = query._jsq.streamingQuery().lastExecution()
    if execution is None:
        return None
    metrics = execution.observedMetrics()
    name = f"{_PREFIX}{source}"
    if not metrics.contains(name):
        return None
    row = metrics.apply(name)
    return RecordCounts(int(row.getLong(0)), int(row.getLong(1)))
