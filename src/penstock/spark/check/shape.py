"""What kind of query a sink needs: whether it keeps state, and its output mode.

Views that a Python function makes can only be known from Spark's plan: the answer is None there.
"""

from penstock.spark.check.relations import Relation
from penstock.spark.check.views import Analysis, analyse
from penstock.spark.pipeline.model import OutputMode, PipelineSpec, SinkSpec
from penstock.spark.sinks.registry import kind_of


def stateful(
    spec: PipelineSpec, sink: SinkSpec, *, analysis: Analysis | None = None
) -> bool | None:
    """Whether the query remembers anything from batch to batch; None: unknown before it runs."""
    relation = (analysis or analyse(spec)).view(sink.view)
    if relation.states:
        return True
    return None if relation.opaque else False


def output_mode(
    spec: PipelineSpec, sink: SinkSpec, *, analysis: Analysis | None = None
) -> OutputMode | None:
    """What the sink says; else `update` for upserts of aggregates, and `append` for all others.

    Upserts of what Spark can only append (session windows, for one) are appended.
    """
    if sink.output_mode is not None:
        return sink.output_mode
    if not kind_of(sink).prefers_update(sink):
        return "append"
    relation = (analysis or analyse(spec)).view(sink.view)
    if relation.opaque:
        return None
    if relation.aggregated and cannot_update(relation) is None:
        return "update"
    return "append"


def cannot_update(relation: Relation) -> str | None:
    """Why Spark would not run it in the output mode `update`."""
    for each in relation.states:
        if each.session:
            return f"the session windows of {each.step} come out only once they are over"
        if each.outer:
            return f"the outer join of two streams in {each.step} only appends"
        if each.kind.value == "LIMIT":
            return f"LIMIT (in {each.step}) only appends"
        if each.after_aggregation:
            return f"{each.step} works on what an aggregation before it has made"
    return None


def cannot_append(relation: Relation) -> str | None:
    """Why Spark would not run it in the output mode `append`."""
    for each in relation.states:
        if each.is_aggregation and not each.watermarked:
            return f"no row of the aggregation in {each.step} is ever final without a watermark"
    return None
