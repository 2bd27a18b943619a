"""Steps of pipelines: windows, joins, custom state, functions, tables that change (D2)."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.producer.producer import Producer
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import (
    PipelineSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.progress import SourceOffsets
from penstock.spark.run.compile import CompiledQuery, compile_query
from penstock.spark.run.run import run
from penstock.spark.run.session import query_session
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.port import Sink
from penstock.testing import Broker
from tests.support.spark.memory_sink import Memory, MemorySink
from tests.support.spark.pipelines import CLICKS, click

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

ORDERS = "click bigint, at timestamp, amount double"

SLIDING = """
SELECT window.start AS start, count(*) AS clicks FROM clicks
GROUP BY window(at, '1 minute', '30 seconds')
"""
SESSIONS = """
SELECT page, session_window.start AS start, session_window.end AS end, count(*) AS clicks
FROM clicks GROUP BY session_window(at, '10 seconds'), page
"""
BOUGHT = """
SELECT c.id, c.page, o.amount FROM clicks c JOIN orders o
ON c.id = o.click AND o.at BETWEEN c.at AND c.at + INTERVAL 1 MINUTE
"""


def count_all(
    key: tuple[str], batches: "Iterator[pd.DataFrame]", state: "GroupState"
) -> "Iterator[pd.DataFrame]":
    import pandas as pd

    (before,) = state.get if state.exists else (0,)
    total = before + sum(len(batch) for batch in batches)
    state.update((total,))
    yield pd.DataFrame({"page": [key[0]], "total": [total]})


def totals(views: "Mapping[str, DataFrame]") -> "DataFrame":
    from pyspark.sql.streaming.state import GroupStateTimeout

    return (
        views["clicks"]
        .groupBy("page")
        .applyInPandasWithState(
            count_all,
            "page string, total bigint",
            "n bigint",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


def pipeline(
    broker: Broker, directory: Path, topics: str, steps: tuple[StepSpec, ...], view: str
) -> PipelineSpec:
    """Returns a pipeline with the sources `clicks` and `orders` and the table `pages`."""

    def source(name: str, schema: str) -> SourceSpec:
        watermark = Watermark(column="at", delay="0 seconds")
        topic = f"{topics}-{name}"
        return SourceSpec(name=name, topics=(topic,), schema=schema, watermark=watermark)

    return PipelineSpec(
        name=topics,
        bootstrap_servers=broker.bootstrap_servers,
        sources=(source("clicks", CLICKS), source("orders", ORDERS)),
        tables=(TableSpec(name="pages", database=f"sqlite:///{directory / 'db'}", table="pages"),),
        steps=steps,
        sinks=(ParquetSinkSpec(name="out", view=view, path="unused"),),
        checkpoint=str(directory / "checkpoints"),
    )


class Environment:
    """Queries over the same two topics, one for each step."""

    def __init__(self, spark: "SparkSession", broker: Broker, directory: Path, name: str) -> None:
        self.spark = spark
        self.memories: dict[str, Memory] = {}
        self._broker = broker
        self._directory = directory
        self._name = name
        for item in ("clicks", "orders"):
            broker.create_topic(f"{name}-{item}", 1)

    def produce(self, source: str, *values: bytes) -> None:
        with Producer(bootstrap_servers=self._broker.bootstrap_servers) as producer:
            producer.send_many(f"{self._name}-{source}", list(values)).result()

    def run(self, *steps: StepSpec) -> None:
        spec = pipeline(self._broker, self._directory, self._name, steps, "clicks")
        spec = replace(spec, tables=())
        sinks = tuple(
            ParquetSinkSpec(name=step.name, view=step.name, path="unused") for step in steps
        )

        def sink(spec: PipelineSpec, sink: object, spark: "SparkSession") -> Sink:
            assert isinstance(sink, ParquetSinkSpec)
            return MemorySink(self.memories.setdefault(sink.name, Memory()))

        run(replace(spec, sinks=sinks), once=True, spark=self.spark, sinks=sink)

    def rows(self, step: str) -> list[tuple[object, ...]]:
        def normalized(value: object) -> object:
            return f"{value:%H:%M:%S}" if hasattr(value, "strftime") else value

        return sorted(
            tuple(normalized(item) for item in row.values()) for row in self.memories[step].rows
        )


def order(number: int, amount: float, second: int) -> bytes:
    return (
        click(number, second=second)
        .replace(b'"page": "home"', f'"amount": {amount}'.encode())
        .replace(b'"id"', b'"click"')
    )


@pytest.mark.long
def test_windows_joins_and_custom_state(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """All queries of a pipeline run concurrently, in one session."""
    environment = Environment(spark, broker, tmp_path, "windows")
    environment.produce("clicks", *(click(number, second=number * 20) for number in range(4)))
    environment.produce("clicks", click(9, second=300))
    environment.produce("orders", order(1, 5.0, 30), order(2, 7.0, 200), order(9, 1.0, 301))
    environment.run(
        StepSpec(name="sliding", sql=SLIDING),
        StepSpec(name="sessions", sql=SESSIONS),
        StepSpec(name="bought", sql=BOUGHT),
        StepSpec(name="totals", function=totals),
    )
    assert environment.rows("sliding") == [
        ("11:59:30", 2),
        ("12:00:00", 3),
        ("12:00:30", 2),
        ("12:01:00", 1),
    ]
    assert [row[1:] for row in environment.rows("sessions")] == [
        ("12:00:00", "12:00:10", 1),
        ("12:00:20", "12:00:30", 1),
        ("12:00:40", "12:00:50", 1),
        ("12:01:00", "12:01:10", 1),
    ]
    assert environment.rows("bought") == [(1, "home", 5.0), (9, "home", 1.0)]
    assert environment.rows("totals") == [("home", 5)]


def test_a_table_is_read_again_in_every_batch(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """Duplicate clicks are dropped first, and the function in a file is the last step."""
    (tmp_path / "steps.py").write_text(
        "from pyspark.sql import functions as f\n\n"
        "@f.udf('string')\n"
        "def loud(text):\n"
        "    return text.upper()\n\n"
        "def shout(views):\n"
        "    return views['titled'].withColumn('title', loud('title'))\n"
    )
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("CREATE TABLE pages (page TEXT, title TEXT)")
        database.execute("INSERT INTO pages VALUES ('home', 'old')")
    environment = Environment(spark, broker, tmp_path, "tables")
    compiled = pipeline(broker, tmp_path, "tables", (), "shouted")
    spec = replace(
        compiled,
        file=str(tmp_path / "pipeline.yml"),
        steps=(
            StepSpec(name="unique", deduplicate=("id",), source="clicks"),
            StepSpec(name="titled", sql="SELECT id, title FROM unique JOIN pages USING (page)"),
            StepSpec(name="shouted", function="steps.py:shout"),
        ),
        max_batch_records=2,
    )
    memory = Memory()
    steps: list[str] = []

    def at(step: str) -> None:
        steps.append(step)
        if step == "stored" and steps.count("stored") == 1:
            with sqlite3.connect(tmp_path / "db") as database:
                database.execute("UPDATE pages SET title = 'new'")
            database.close()

    clicks = (click(1), click(1), click(2, second=1), click(1))
    environment.produce("clicks", *clicks)
    run(spec, once=True, spark=spark, sinks=lambda *args: MemorySink(memory), at=at)
    database.close()
    assert [tuple(row.values()) for row in memory.rows] == [(1, "OLD"), (2, "NEW")]


def compiled(spark: "SparkSession", spec: PipelineSpec) -> CompiledQuery:
    return compile_query(
        query_session(spark, spec), spec, spec.sinks[0], lambda source: SourceOffsets({})
    )


def test_facts_of_plans(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    both = "SELECT id FROM clicks UNION ALL SELECT id + 1 FROM clicks"
    spec = pipeline(broker, tmp_path, "any", (StepSpec(name="both", sql=both),), "both")
    twice = compiled(spark, spec)
    assert (twice.plan.sources, twice.plan.stateful) == (("clicks", "clicks#2"), False)

    sums = StepSpec(name="sums", function=lambda views: views["clicks"].groupBy("page").count())
    upsert = DatabaseSinkSpec(
        name="out", view="sums", database="sqlite:///x", table="t", mode="upsert", key=("page",)
    )
    summed = compiled(spark, replace(spec, tables=(), steps=(sums,), sinks=(upsert,)))
    assert (summed.plan.sources, summed.plan.stateful) == (("clicks",), True)
    assert summed.output_mode == "update"


def test_errors_of_compilation(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    def problem(step: StepSpec, view: str = "step") -> str:
        with pytest.raises(PipelineError) as raised:
            compiled(spark, replace(pipeline(broker, tmp_path, "any", (step,), view), tables=()))
        return str(raised.value)

    def foreign(views: "Mapping[str, DataFrame]") -> "DataFrame":
        return spark.readStream.format("rate").load()

    assert "step step (line 7): " in problem(StepSpec(name="step", sql="SELECT x", line=7))
    assert "reads no topic" in problem(StepSpec(name="step", sql="SELECT 1 AS one"))
    assert "not a source of the pipeline" in problem(StepSpec(name="step", function=foreign))
    assert "there is no view nothing" in problem(StepSpec(name="step", sql="SELECT 1"), "nothing")
    fails = StepSpec(name="step", function=lambda views: views["clcks"], line=9)
    assert problem(fails) == "step step (line 9): KeyError: 'clcks'"
    gives_text = StepSpec(name="step", function=lambda views: "text")  # type: ignore[arg-type,return-value]
    assert "returned str instead of a DataFrame" in problem(gives_text)


def test_names_with_dots_and_backticks(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    watermark = Watermark(column="at.`b", delay="1 minute")
    timed = StepSpec(name="timed", sql="SELECT id, at AS `at.``b` FROM clicks", watermark=watermark)
    once = StepSpec(name="once", source="timed", deduplicate=("at.`b",))
    spec = replace(pipeline(broker, tmp_path, "any", (timed, once), "once"), tables=())
    query = compiled(spark, spec)
    assert query.plan.stateful
    assert query.frame.columns == ["id", "at.`b"]


def test_a_step_only_queries(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    """Even if `validate` does not understand the statement: Spark would run it at once."""
    setting = "spark.sql.shuffle.partitions"
    for sql, reason in (
        (f"SET {setting} = 7", "SetCommand is not possible: a step only queries"),
        ("DROP VIEW clicks", "Drop"),
        ("WITH c AS (SELECT 1) INSERT INTO a SELECT * FROM c", "InsertInto"),
        ("FROM clicks INSERT INTO a SELECT id INSERT INTO b SELECT id", "InsertInto"),
        ("CREATE TABLE stolen USING parquet AS SELECT 1 AS a", "CreateTable"),
        ("ADD JAR '/stolen.jar'", "AddJar"),
        ("EXECUTE IMMEDIATE 'DROP VIEW clicks'", "ExecuteImmediate"),
        ("SELECT TRANSFORM(id) USING 'cat' AS (a) FROM clicks", "ScriptTransformation"),
        (f"BEGIN SET {setting} = 7; SELECT 1; END", ""),
        ("SELECT * FROM text.`/etc/hostname`", "NOT_FOUND"),
        ("SELECT * FROM IDENTIFIER('text.`/etc/hostname`')", "NOT_FOUND"),
    ):
        steps = (StepSpec(name="rows", sql=sql, line=7),)
        spec = replace(pipeline(broker, tmp_path, "any", steps, "rows"), tables=())
        with pytest.raises(PipelineError) as raised:
            compiled(spark, spec)
        assert str(raised.value).startswith("step rows (line 7): "), sql
        assert reason in str(raised.value)
    assert spark.conf.get(setting) != "7"


def test_only_checkpoints_of_this_machine_are_written_as_plain_files(spark: "SparkSession") -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    spec = PipelineSpec(name="p", bootstrap_servers="", sources=(), sinks=())

    def manager(**changes: object) -> str:
        changed = PipelineSpec(**{**spec.__dict__, **changes})
        return str(query_session(spark, changed).conf.get(name, "Spark's own"))

    assert manager().endswith(".FileSystemBasedCheckpointFileManager")
    assert manager(checkpoint="file:///tmp/c") == manager()
    assert manager(checkpoint="hdfs://a/c") == "Spark's own"
    # The settings of a pipeline are applied when the session starts.
    assert manager(spark={name: "mine"}) == "Spark's own"
