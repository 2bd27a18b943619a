"""`format("penstock_table")`: a static table that is read again in every batch of a stream.

Spark's own readers cannot do that: they keep the list of files from the start of the query, and a
database needs the jar of its driver.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.pipeline.model import TableSpec
from penstock.spark.run.static_tables import StaticTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ROWS_TO_BROADCAST = 1_000_000
"""Smaller tables are broadcast to every task, so that the stream need not be sorted."""


class TableDataSource(DataSource):
    """The data source that Spark instantiates for `penstock_table`."""

    @classmethod
    def name(cls) -> str:
        return "penstock_table"

    def schema(self) -> StructType:
        return from_arrow_schema(StaticTable(self.options).schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TableReader(StaticTable(self.options), schema)


class _TableReader(DataSourceReader):
    def __init__(self, table: StaticTable, schema: StructType) -> None:
        self._table = table
        self._schema = schema

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return self._table.batches(to_arrow_schema(self._schema, timezone="UTC"))


def static_frame(spark: "SparkSession", spec: TableSpec) -> "DataFrame":
    """Returns a static table of the pipeline as a frame."""
    spark.dataSource.register(TableDataSource)
    fields = {"database": spec.database, "table": spec.table, "path": spec.path}
    options = {name: value for name, value in fields.items() if value is not None}
    table = StaticTable(options)
    schema = spec.schema or from_arrow_schema(table.schema())
    frame = spark.read.format("penstock_table").schema(schema).options(**options).load()
    return frame.hint("broadcast") if table.count() <= _ROWS_TO_BROADCAST else frame
