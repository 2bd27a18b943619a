"""The shape of the query that a sink needs: whether it keeps state, and its output mode.

Both are None if a Python function makes the view: then only Spark's plan shows them.
"""

from penstock.spark.check.relations import Relation, StateKind
from penstock.spark.check.views import Analysis, analyze
from penstock.spark.pipeline.model import OutputMode, PipelineSpec, SinkSpec
from penstock.spark.sinks.registry import kind_of


def is_stateful(
    spec: PipelineSpec, sink: SinkSpec, *, analysis: Analysis | None = None
) -> bool | None:
    """Returns whether the query keeps state from batch to batch; None: unknown before it runs."""
    relation = (analysis or analyze(spec)).view(sink.view)
    if relation.states:
        return True
    return None if relation.is_opaque else False


def output_mode(
    spec: PipelineSpec, sink: SinkSpec, *, analysis: Analysis | None = None
) -> OutputMode | None:
    """Returns the sink's own mode, else `update` for upserts of aggregates, else `append`.

    Upserts of rows that Spark can only append, such as those of session windows, are appended.
    """
    if sink.output_mode is not None:
        return sink.output_mode
    if not kind_of(sink).prefers_update(sink):
        return "append"
    relation = (analysis or analyze(spec)).view(sink.view)
    if relation.is_opaque:
        return None
    if relation.is_aggregated and update_obstacle(relation) is None:
        return "update"
    return "append"


def update_obstacle(relation: Relation) -> str | None:
    """Returns why Spark would refuse the output mode `update`, or None."""
    for state in relation.states:
        if state.is_session:
            return f"the session windows of {state.step} come out only once they are over"
        if state.is_outer_join:
            return f"the outer join of two streams in {state.step} only appends"
        if state.kind is StateKind.LIMIT:
            return f"LIMIT (in {state.step}) only appends"
        if state.follows_aggregation:
            return f"{state.step} reads the result of an earlier aggregation"
    return None


def append_obstacle(relation: Relation) -> str | None:
    """Returns why Spark would refuse the output mode `append`, or None."""
    for state in relation.states:
        if state.is_aggregation and not state.is_watermarked:
            return f"no row of the aggregation in {state.step} is ever final without a watermark"
    return None
