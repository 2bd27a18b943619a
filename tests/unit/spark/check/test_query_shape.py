"""Whether the query of a sink has_state state, and its output mode."""

import pytest

from penstock.spark.check.query_shape import is_stateful, output_mode
from penstock.spark.pipeline.model import (
    OutputMode,
    PipelineSpec,
    SourceSpec,
    StepSpec,
    Watermark,
)
from penstock.spark.sinks.database.kind import DatabaseSinkSpec, Mode
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from tests.support.spark.sql_corpus import pipeline

COUNTS = "SELECT user AS k, count(*) AS n FROM clicks GROUP BY user, window(at, '1 hour')"
SESSIONS = "SELECT user AS k, count(*) AS n FROM clicks GROUP BY user, session_window(at, '1 hour')"
AGAIN = "SELECT window(w, '1 day') AS d, sum(n) AS n FROM s0 GROUP BY d"
MINUTES = "SELECT window(at, '1 minute') AS w, count(*) AS n FROM clicks GROUP BY w"
JOINED = (
    "SELECT v.user AS k, c.page FROM views v {} JOIN clicks c\n"
    "ON c.user = v.user AND c.at >= v.seen AND c.at <= v.seen + INTERVAL 1 HOUR"
)


@pytest.mark.parametrize(
    ("sql", "has_state", "mode"),
    [
        (["SELECT user AS k FROM clicks"], False, "append"),
        (["SELECT c.user AS k FROM clicks c JOIN customers d ON c.user = d.user"], False, "append"),
        ([COUNTS], True, "update"),
        ([COUNTS, "SELECT k FROM s0 WHERE n > 3"], True, "update"),
        (["SELECT count(*) AS k FROM clicks"], True, "update"),
        (["SELECT DISTINCT user AS k, at FROM clicks"], True, "update"),
        ([SESSIONS], True, "append"),
        ([MINUTES, AGAIN], True, "append"),
        ([JOINED.format("")], True, "append"),
        ([JOINED.format("LEFT")], True, "append"),
        (["SELECT user AS k FROM clicks LIMIT 3"], True, "append"),
        (["SELECT"], None, None),
    ],
)
def test_the_shape_of_sql(sql: list[str], has_state: bool | None, mode: OutputMode | None) -> None:
    spec = pipeline(*sql)
    (sink,) = spec.sinks
    assert is_stateful(spec, sink) is has_state
    assert output_mode(spec, sink) == mode


def pipeline_with(step: StepSpec, *more: StepSpec) -> PipelineSpec:
    source = SourceSpec(
        name="s",
        topics=("t",),
        schema="k string, at timestamp",
        watermark=Watermark(column="at", delay="1 hour"),
    )
    return PipelineSpec(
        name="p", bootstrap_servers="h:1", sources=(source,), steps=(step, *more), sinks=()
    )


def database_sink(
    view: str, mode: Mode = "upsert", output: OutputMode | None = None
) -> DatabaseSinkSpec:
    return DatabaseSinkSpec(
        name="o", view=view, database="x://", table="t", mode=mode, output_mode=output
    )


def test_the_shape_after_a_function_is_unknown() -> None:
    spec = pipeline_with(
        StepSpec(name="made", function="m:f"),
        StepSpec(name="sums", sql="SELECT k, count(*) AS n FROM made GROUP BY k"),
        StepSpec(name="once", source="s", deduplicate=("k",)),
    )
    for view in ("made", "sums"):
        assert is_stateful(spec, database_sink(view)) is None
        assert output_mode(spec, database_sink(view)) is None
        assert output_mode(spec, database_sink(view, "append")) == "append"
        assert output_mode(spec, database_sink(view, output="update")) == "update"
        assert output_mode(spec, TopicSinkSpec(name="o", view=view)) == "append"
    assert is_stateful(spec, database_sink("once")) is True
    assert is_stateful(spec, database_sink("s")) is False


def test_the_shape_of_a_missing_view_is_unknown() -> None:
    assert (
        is_stateful(pipeline_with(StepSpec(name="a", sql="SELECT 1")), database_sink("zz")) is None
    )
