"""The numbers of records of each source that Spark counts while the plan of a batch runs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_PREFIX = "penstock_records_"


@dataclass(frozen=True)
class RecordCounts:
    """The records of one source. A task that ran twice may be counted twice: only 0 is exact."""

    records: int
    bad: int


def count_records(frame: "DataFrame", source: str) -> "DataFrame":
    """Returns a frame of decoded rows that Spark counts while they pass."""
    from pyspark.sql import functions as sql

    return frame.observe(
        f"{_PREFIX}{source}",
        sql.count(sql.lit(1)).alias("records"),
        sql.count(sql.when(sql.col("_error").isNotNull(), 1)).alias("bad"),
    )


def read_counts(query: "StreamingQuery", source: str) -> RecordCounts | None:
    """Returns the counts of the current batch, whose plan has run.

    Returns None if Spark's optimizer left the source out of the plan.
    """
    execution = query._jsq.streamingQuery().lastExecution()
    if execution is None:
        return None
    metrics = execution.observedMetrics()
    name = f"{_PREFIX}{source}"
    if not metrics.contains(name):
        return None
    row = metrics.apply(name)
    return RecordCounts(int(row.getLong(0)), int(row.getLong(1)))
