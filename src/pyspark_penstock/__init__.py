"""Spark looks for packages named `pyspark_…` and registers their `DefaultSource` by itself, so that
`format("penstock")` works in every session of a Python that has Penstock."""

from penstock.spark.source.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
