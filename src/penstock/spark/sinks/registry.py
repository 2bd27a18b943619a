"""The kinds of sinks that pipelines can have."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from penstock.spark.pipeline.model import PipelineSpec, SinkSpec
from penstock.spark.sinks.database.kind import DatabaseSinkKind
from penstock.spark.sinks.kind import SinkKind
from penstock.spark.sinks.parquet.kind import ParquetSinkKind
from penstock.spark.sinks.topic.kind import TopicSinkKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.sinks.port import Sink

Spec = TypeVar("Spec", bound=SinkSpec)

SinkFactory: TypeAlias = "Callable[[PipelineSpec, SinkSpec, SparkSession], Sink]"

SINK_KINDS: dict[type[SinkSpec], SinkKind[Any]] = {
    kind.spec_type: kind for kind in (DatabaseSinkKind(), TopicSinkKind(), ParquetSinkKind())
}
"""By the class of the spec, in the order in which errors name them."""


def kind_of(sink: Spec) -> SinkKind[Spec]:
    return SINK_KINDS[type(sink)]


def create_sink(spec: PipelineSpec, sink: SinkSpec, spark: "SparkSession") -> "Sink":
    """Returns the sink of a query, which the caller must open."""
    return kind_of(sink).create(spec, sink, spark)
