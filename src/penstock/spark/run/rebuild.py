"""Removes results, progress and state of a pipeline, so that the next run recreates the results.

The order is: take the sink over, so that a driver that still runs is refused; clear the sink in one
transaction; remove the checkpoint. After a crash in between, the sink has no progress and there is
a checkpoint, or a part of one: `run` refuses that, and a second `rebuild` finishes it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.offset_log import Checkpoint, CheckpointFiles
from penstock.spark.run.query import StepHook, location_of, new_owner
from penstock.spark.sinks.registry import SinkFactory, create_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    spec: PipelineSpec,
    spark: "SparkSession",
    names: Sequence[str] = (),
    *,
    sinks: SinkFactory = create_sink,
    at: StepHook = lambda step: None,
) -> list[str]:
    """Clears the sinks of these names, or all, and returns the keys of their queries.

    The next `run` reads everything again, from the position that `starting` names.
    """
    unknown = set(names) - {sink.name for sink in spec.sinks}
    if unknown:
        raise PipelineError(
            f"there is no sink {', '.join(sorted(unknown))} in {spec.name}: it has "
            f"{', '.join(sink.name for sink in spec.sinks)}"
        )
    owner = new_owner()
    cleared: list[str] = []
    for sink_spec in spec.sinks:
        if names and sink_spec.name not in names:
            continue
        sink = sinks(spec, sink_spec, spark)
        try:
            sink.open(owner)
            at("opened")
            sink.clear()
            at("cleared")
        finally:
            sink.close()
        Checkpoint(CheckpointFiles(spark, location_of(spec, sink_spec))).remove()
        at("removed")
        cleared.append(spec.query(sink_spec))
    return cleared
