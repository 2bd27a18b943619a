"""Spark agrees with `validate` about the statements of the corpus."""

from typing import TYPE_CHECKING

import pytest

from penstock.spark.check.durations import parse_duration
from penstock.spark.check.query_shape import (
    append_obstacle,
    is_stateful,
    output_mode,
    update_obstacle,
)
from penstock.spark.check.views import analyze
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.plan_facts import facts_of
from tests.support.spark.sql_corpus import (
    BARE,
    CLICKS,
    CUSTOMERS,
    GOOD,
    REFUSED,
    UNBOUNDED,
    VIEWS,
    pipeline,
)

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

_RECORD = "_key binary, _topic string, _partition int, _offset bigint, _timestamp timestamp"


@pytest.fixture(scope="module")
def views(spark: "SparkSession") -> "SparkSession":
    """A session with the views of the corpus, as streams without rows."""
    from pyspark.sql import functions

    spark = spark.newSession()
    for name, schema, watermark in (
        ("clicks", CLICKS, ("at", "10 minutes")),
        ("views", VIEWS, ("seen", "20 minutes")),
        ("bare", BARE, None),
    ):
        columns = spark.createDataFrame([], f"{schema}, {_RECORD}").schema
        rate = spark.readStream.format("rate").option("sourceName", name).load()
        stream = rate.select(
            *(functions.lit(None).cast(column.dataType).alias(column.name) for column in columns)
        )
        if watermark is not None:
            stream = stream.withWatermark(*watermark)
        stream.createOrReplaceTempView(name)
    spark.createDataFrame([], CUSTOMERS).createOrReplaceTempView("customers")
    return spark


def _refusal(spark: "SparkSession", frame: "DataFrame", mode: str) -> str | None:
    """Returns why Spark would not start the query in this output mode."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    jvm: JavaObject = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    output_mode = modes.Append() if mode == "append" else modes.Update()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output_mode)
    except (AnalysisException, Py4JJavaError) as error:
        return str(error)
    return None


def problems_of(spec: PipelineSpec) -> list[str]:
    return [problem.message for problem in analyze(spec).problems]


@pytest.mark.parametrize("sql", GOOD)
def test_spark_agrees_about_good_statements(views: "SparkSession", sql: str) -> None:
    """D2: columns, event time, state and output modes are those of Spark's own analysis."""
    spec = pipeline(sql)
    analysis = analyze(spec)
    relation = analysis.view("s0")
    assert not analysis.problems
    assert relation.is_streaming is not None or relation.is_opaque

    frame = views.sql(sql)

    assert relation.is_streaming in (frame.isStreaming, None)
    if relation.is_complete:
        assert [column.name or "?" for column in relation.columns] == [
            field.name if column.name else "?"
            for field, column in zip(frame.schema, relation.columns, strict=True)
        ]
        assert [column.is_event_time for column in relation.columns] == [
            "spark.watermarkDelayMs" in field.metadata for field in frame.schema
        ]
    if not frame.isStreaming or relation.is_opaque:
        return
    appended, updated = (_refusal(views, frame, mode) for mode in ("append", "update"))
    assert (append_obstacle(relation) is None) == (appended is None), appended
    assert (update_obstacle(relation) is None) == (updated is None), updated
    mode = output_mode(spec, spec.sinks[0])
    assert mode is not None
    assert _refusal(views, frame, mode) is None
    assert is_stateful(spec, spec.sinks[0]) is facts_of(frame).stateful


@pytest.mark.parametrize(("sql", "message"), REFUSED)
def test_spark_refuses_the_same_statements(views: "SparkSession", sql: str, message: str) -> None:
    from pyspark.errors import AnalysisException

    assert any(message in problem for problem in problems_of(pipeline(sql)))

    try:
        frame = views.sql(sql)
    except AnalysisException:
        return
    assert _refusal(views, frame, "append") is not None
    assert _refusal(views, frame, "update") is not None


@pytest.mark.parametrize(("sql", "message"), UNBOUNDED)
def test_spark_runs_statements_that_keep_state_forever(
    views: "SparkSession", sql: str, message: str
) -> None:
    """That is why `validate` refuses them, unless `unbounded_state` is set."""
    assert any(message in problem for problem in problems_of(pipeline(sql)))
    assert not problems_of(pipeline(sql, unbounded_state=True))

    assert _refusal(views, views.sql(sql), "update") is None


@pytest.mark.parametrize(
    "text",
    [
        *("10 minutes", "1 hour 30 minutes", "1 hour30 minutes", "10minutes", "10 Minutes", "10 m"),
        *("1.5 seconds", ".5 seconds", "5. seconds", "1.5 minutes", "10", "soon", "", "minutes"),
        *(
            "+ 10 minutes",
            "1 hour - 5 minutes",
            "interval 10 minutes",
            "2 weeks 1 day",
            "1 secondss",
        ),
    ],
)
def test_spark_reads_durations_alike(spark: "SparkSession", text: str) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    jvm: JavaObject = spark._jvm
    try:
        read = jvm.org.apache.spark.sql.catalyst.util.IntervalUtils.fromIntervalString(text)
    except (Py4JJavaError, PySparkException):
        with pytest.raises(ValueError, match=r"\w"):
            parse_duration(text)
        return
    days, rest = read.extractAsPeriod().getDays(), read.extractAsDuration().toMillis()
    assert parse_duration(text) == days * 86_400 + rest / 1000


def test_spark_joins_streams_by_equality_only(views: "SparkSession") -> None:
    """Spark reports it only after the query has started."""
    from pyspark.errors import StreamingQueryException

    sql = "SELECT c.user FROM clicks c JOIN views v ON c.at > v.seen"
    assert any("without an equality" in problem for problem in problems_of(pipeline(sql)))

    query = views.sql(sql).writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="equality predicate"):
        query.awaitTermination(60)
