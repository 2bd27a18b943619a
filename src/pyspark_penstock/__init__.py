"""Registers `format("penstock")` in every Spark session of a Python that has Penstock installed.

Spark imports packages named `pyspark_…` and registers their `DefaultSource` automatically.
"""

from penstock.spark.source.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
