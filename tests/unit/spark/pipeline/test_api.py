"""The Python API builds the same pipeline as a file."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import penstock.spark
from penstock.spark import Pipeline
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.pipeline.yaml_file import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = """\
name: shop
bootstrap_servers: localhost:9092
trigger: 2 seconds
max_batch_records: 1000
kafka: {security.protocol: SSL}
spark: {spark.master: "local[2]"}
sources:
  clicks:
    topic: clicks
    schema: user string, at timestamp
    watermark: {column: at, delay: 10 minutes}
    required: [user]
  orders:
    pattern: orders-.*
    format: csv
    schema: |
      id bigint,
      user string
    starting: latest
    headers: true
    options: {sep: ";"}
  raw: {topics: [a, b], format: raw}
tables:
  customers: {database: "sqlite:////shop.db", table: customers}
  cities: {path: /cities.parquet, schema: city string}
steps:
  once: {from: clicks, deduplicate: [user]}
  per_minute:
    sql: |
      SELECT window.start AS minute, user, count(*) AS n
      FROM once
      GROUP BY window(at, '1 minute'), user
  scored: {function: "scoring:score", watermark: {column: at, delay: 1 minute}}
  totals: {sql: "SELECT user, count(*) AS n FROM clicks GROUP BY user", unbounded_state: true}
sinks:
  per_minute:
    from: per_minute
    database: sqlite:////shop.db
    table: per_minute
    mode: upsert
    key: [minute, user]
  totals: {from: totals, topic: totals, key: user, output_mode: update, options: {kafka.acks: all}}
  archive: {from: raw, path: /archive, partition_by: [_topic]}
dead_letters: {topic: dead, max_count: 5, max_share: 0.1}
checkpoint: /state
"""


def _built() -> Pipeline:
    p = Pipeline(
        "shop",
        bootstrap_servers="localhost:9092",
        trigger="2 seconds",
        max_batch_records=1000,
        checkpoint="/state",
        kafka={"security.protocol": "SSL"},
        spark={"spark.master": "local[2]"},
    )
    clicks = p.source(
        "clicks",
        topic="clicks",
        schema="user string, at timestamp",
        watermark=("at", "10 minutes"),
        required=["user"],
    )
    p.source(
        "orders",
        pattern="orders-.*",
        format="csv",
        schema="""
            id bigint,
            user string
        """,
        starting="latest",
        headers=True,
        options={"sep": ";"},
    )
    raw = p.source("raw", topic=["a", "b"], format="raw")
    p.table("customers", database="sqlite:////shop.db", table="customers")
    p.table("cities", path="/cities.parquet", schema="city string")
    once = p.deduplicate("once", clicks, "user")
    per_minute = p.sql(
        "per_minute",
        f"""
        SELECT window.start AS minute, user, count(*) AS n
        FROM {once}
        GROUP BY window(at, '1 minute'), user
        """,
    )
    p.step("scored", "scoring:score", watermark=("at", "1 minute"))
    totals = p.sql(
        "totals", f"SELECT user, count(*) AS n FROM {clicks} GROUP BY user", unbounded_state=True
    )
    p.to_database(
        per_minute, "sqlite:////shop.db", table="per_minute", mode="upsert", key=["minute", "user"]
    )
    p.to_topic(totals, "totals", key="user", output_mode="update", options={"kafka.acks": "all"})
    p.to_parquet(raw, "/archive", partition_by="_topic", name="archive")
    p.dead_letters(topic="dead", max_count=5, max_share=0.1)
    return p


def _without_lines(part: object) -> object:
    """Returns the part without the lines that only a file has."""
    if isinstance(part, tuple):
        return tuple(map(_without_lines, part))
    if not is_dataclass(part) or isinstance(part, type):
        return part
    plain = {"line": None, "sql_line": None, "sql_indent": 0, "file": None}
    return replace(
        part,
        **{f.name: plain.get(f.name, _without_lines(getattr(part, f.name))) for f in fields(part)},
    )


def test_a_file_and_the_same_calls_build_the_same_pipeline() -> None:
    spec, problems = parse(FILE, "/flows/pipeline.yml", variables={})

    assert problems == []
    assert cast(PipelineSpec, _without_lines(spec)) == _built().spec


def test_functions_are_steps() -> None:
    p = Pipeline("p", bootstrap_servers="h:1")
    p.source("s", topic="t", schema="a int, at timestamp")

    @p.step("doubled", watermark=("at", "1 minute"))
    def double(views: "Mapping[str, DataFrame]") -> "DataFrame":
        return views["s"].selectExpr("a * 2 AS a", "at")

    assert p.step("again", double) == "again"
    first, second = p.spec.steps
    assert first.function is double
    assert first.watermark is not None
    assert second.function is double
    p.to_topic("doubled")
    assert p.validate() == []
    assert "function test_functions_are_steps.<locals>.double" in p.plan()


def test_a_pipeline_is_checked_before_it_runs() -> None:
    p = Pipeline("p", bootstrap_servers="h:1")
    p.source("s", topic="t", schema="a int")
    p.sql("t", "SELECT b FROM s")
    p.to_topic("t", "out")

    assert [problem.where for problem in p.validate()] == ["steps.t.sql"]
    with pytest.raises(PipelineError, match=r"cannot run:\n  steps.t.sql: there is no column b"):
        p.run(once=True)


def test_invalid_client_settings_are_one_problem() -> None:
    kafka = {"no.such.setting": "x", "security.protocol": "NONSENSE"}
    p = Pipeline("p", bootstrap_servers="127.0.0.1:1", kafka=kafka)
    p.source("s", topic="t", schema="a int")
    p.to_topic("s", "out")
    assert [problem.where for problem in p.validate(online=True)] == ["pipeline.kafka"]


def test_values_that_a_file_cannot_have_are_problems() -> None:
    p = Pipeline("p", bootstrap_servers="h:1")
    p.source("s", topic="t", schema="a int", format="jsn")
    p.source("r", topic="t", format="raw")
    p.to_topic("r", "out", output_mode="complete")  # type: ignore[arg-type]
    p.to_database("r", "sqlite:///x", table="t", name="d", mode="upsrt", writing="x")  # type: ignore[arg-type]
    problems = [str(problem) for problem in p.validate()]
    assert "sources.s.format: 'jsn' is not one of json, avro, protobuf, csv, raw" in problems
    assert "sinks.r.output_mode: 'complete' is not one of append, update" in problems
    assert "sinks.d.mode: 'upsrt' is not one of append, upsert" in problems
    assert "sinks.d.writing: 'x' is not one of driver, staged" in problems


def test_a_file_can_be_added_to(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yml"
    path.write_text(FILE)
    p = Pipeline.from_file(path)
    p.to_topic("clicks", "copy", name="copied")

    assert [sink.name for sink in p.spec.sinks] == ["per_minute", "totals", "archive", "copied"]
    assert p.spec.file == str(path)
    assert replace(p.spec, sinks=p.spec.sinks[:3]).sources[0].line == 8


def test_the_package_imports_no_large_packages() -> None:
    """Executors import it only for the data source."""
    script = (
        "import sys, penstock.spark\n"
        "before = 'penstock.spark.pipeline.api' in sys.modules\n"
        "penstock.spark.Pipeline('p', bootstrap_servers='h:1').spec\n"
        "print(before, [name for name in ('pyspark', 'sqlglot', 'yaml') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False []"
    with pytest.raises(AttributeError, match="Pipelin"):
        penstock.spark.Pipelin  # noqa: B018
