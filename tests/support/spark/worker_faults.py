"""Python workers of Spark that are killed while they run a task, once each.

What happens in a worker is pickled on its way there, so it is defined inside of functions.
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
    """The function of a step: the rows of a view as they are. The first task makes the file
    `marker` and is killed when it has given away its first rows."""

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
    """The first task that has staged all its rows makes the file `marker` and is killed: its rows
    are in the staging table, and nobody was told under which token."""
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
