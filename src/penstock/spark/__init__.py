"""Kafka topics in Spark: the `penstock` data source and sink, and exactly-once pipelines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.pipeline.api import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> object:
    # Imported on demand: executors import this package only for the data source.
    if name == "Pipeline":
        from penstock.spark.pipeline.api import Pipeline

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
