"""`format("penstock")`: the data source that creates readers and writers for Spark."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import OptionError
from penstock.spark.source.options import (
    batch_options,
    check_options,
    stream_options,
    wants_headers,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


def schema_of(*, include_headers: bool) -> StructType:
    """Returns the columns, which are those of Spark's own Kafka source."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


class PenstockDataSource(DataSource):
    """Topics as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        check_options(self.options)
        return schema_of(include_headers=wants_headers(self.options))

    def reader(self, schema: StructType) -> "DataSourceReader":
        from penstock.spark.source.readers import PenstockReader

        self._check(schema)
        return PenstockReader(batch_options(self.options))

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802
        from penstock.spark.source.readers import PenstockStreamReader

        self._check(schema)
        return PenstockStreamReader(stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from penstock.spark.sinks.topic.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamWriter":
        from penstock.spark.sinks.topic.writers import stream_writer

        return stream_writer(self.options, schema)

    def _check(self, schema: StructType) -> None:
        fixed = schema_of(include_headers=wants_headers(self.options))
        if [(field.name, field.dataType) for field in schema] != [
            (field.name, field.dataType) for field in fixed
        ]:
            raise OptionError(
                f"the columns of this source are fixed: {fixed.simpleString()}",
                remedy="leave out schema(...), and cast or decode key and value in the query",
            )
