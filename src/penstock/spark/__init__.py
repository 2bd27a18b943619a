"""Topics in Spark: the `penstock` data source and sink, and pipelines that are exactly-once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.pipeline.api import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> object:
    # Executors import this package for the data source alone.
    if name == "Pipeline":
        from penstock.spark.pipeline.api import Pipeline

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
