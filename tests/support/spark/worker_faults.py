"""Kills Python workers of Spark while they run a task, once each.

Code that runs in a worker is pickled, so it is defined inside of functions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

STAGER = "penstock.spark.sinks.database.sink.Stager"


def dying_step(view: str, marker: str) -> "Callable[[Mapping[str, DataFrame]], DataFrame]":
    """Returns a step function that passes the rows of a view unchanged.

    Its first task creates the file `marker` and is killed after it has returned its first rows.
    """

    def step(views: "Mapping[str, DataFrame]") -> "DataFrame":
        def rows(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            import os
            import signal

            for batch in batches:
                yield batch
                try:
                    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)

        return views[view].mapInArrow(rows, views[view].schema)

    return step


@contextmanager
def dying_after_staging(marker: str | None) -> Iterator[None]:
    """Kills the first task that has staged all its rows, after creating the file `marker`.

    Its rows are in the staging table, but its tokens were not returned.
    """
    if marker is None:
        yield
        return
    from penstock.spark.sinks.database.staged import Stager

    path = marker

    class DyingStager(Stager):
        def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            import os
            import signal

            handed = list(Stager.__call__(self, batches))
            if handed:
                try:
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            yield from handed

    with patch(STAGER, DyingStager):
        yield
