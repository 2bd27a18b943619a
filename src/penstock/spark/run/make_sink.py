"""The sink of a query, as the pipeline describes it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from penstock.spark.pipeline.model import (
    DatabaseSinkSpec,
    ParquetSinkSpec,
    PipelineSpec,
    SinkSpec,
    TopicSinkSpec,
)
from penstock.spark.run.source_options import client_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.sinks.port import Sink

MakeSink: TypeAlias = "Callable[[PipelineSpec, SinkSpec, SparkSession], Sink]"


def make_sink(spec: PipelineSpec, sink: SinkSpec, spark: "SparkSession") -> "Sink":
    """Not opened yet. Its dead letters go with the results wherever that can be one transaction:
    a table in the database of the sink, a topic beside the topic of the sink."""
    letters = spec.dead_letters
    match sink:
        case DatabaseSinkSpec():
            from penstock.spark.sinks.database import DatabaseSink

            table = letters.table if letters is not None else None
            return DatabaseSink(sink, spec.query(sink), dead_letter_table=table)
        case TopicSinkSpec():
            from penstock.spark.sinks.topic.sink import TopicSink

            topic = letters.topic if letters is not None else None
            return TopicSink(sink, spec.query(sink), client_of(spec), dead_letter_topic=topic)
        case ParquetSinkSpec():
            from penstock.spark.sinks.parquet.sink import ParquetSink

            return ParquetSink(sink, spec.query(sink), spark)
