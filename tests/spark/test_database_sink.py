"""The database sink with Spark: rows written by the driver, and staged by executors (D3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from sqlalchemy import URL, Engine, inspect, text

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.kind import SinkWriting
from penstock.spark.sinks.port import WriteResult
from tests.support.spark.database_sinks import (
    batch_of,
    begin,
    count_of,
    letters_at,
    rows_of,
    sink_for,
    spec_for,
)
from tests.support.spark.databases import (
    DatabaseServer,
    engine_for,
    mariadb,
    postgresql,
    sqlite_url,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["mariadb", "postgresql"]


class Destination(NamedTuple):
    url: URL
    engine: Engine
    writing: SinkWriting


def frame_of(spark: "SparkSession", *rows: tuple[int, str, str]) -> "DataFrame":
    """Returns a frame of id, name and op in two partitions; later rows are newer."""
    values = [
        (id_, name, f"2026-03-29 01:00:{number:02}", ["a", name], op)
        for number, (id_, name, op) in enumerate(rows)
    ]
    frame = spark.createDataFrame(
        values, "id bigint, name string, at string, tags array<string>, op string"
    )
    return frame.selectExpr("id", "name", "timestamp(at) AS seen", "tags", "op").repartition(2)


@pytest.fixture
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Destination]:
    """A new database, and the mode of writing."""
    kind, staged = request.param
    if kind == "sqlite":
        url = sqlite_url(tmp_path)
    else:
        server: DatabaseServer = request.getfixturevalue(kind)
        url = server.fresh()
    with engine_for(url) as engine:
        yield Destination(url, engine, "staged" if staged else "driver")


# What differs between databases is in `tests/unit/spark/sinks/database`, with all of them.
DRIVER = [
    pytest.param(("sqlite", False), id="sqlite"),
    pytest.param(("postgresql", False), id="postgresql", marks=pytest.mark.long),
    pytest.param(("mariadb", False), id="mariadb", marks=pytest.mark.long),
]
STAGED = [
    pytest.param(("postgresql", True), id="postgresql-staged"),
    pytest.param(("mariadb", True), id="mariadb-staged", marks=pytest.mark.long),
]


@pytest.mark.parametrize("destination", DRIVER + STAGED, indirect=True)
def test_upserts_and_deletes_of_a_frame(spark: "SparkSession", destination: Destination) -> None:
    spec = spec_for(
        destination.url,
        mode="upsert",
        key=["id"],
        order_by=["seen"],
        delete_when="op = 'd'",
        writing=destination.writing,
    )
    with sink_for(spec, dead_letter_table="letters") as sink:
        begin(sink)
        first = frame_of(spark, (1, "a", "i"), (2, "b", "i"), (1, "c", "u"), (3, "x", "i"))
        assert sink.write(first, batch_of(0), lambda: letters_at(1)) == WriteResult(3, 1)
        # NULL does not delete.
        second = frame_of(spark, (2, "b", "d"), (3, "x", "d"), (3, "y", "i"), (4, "z", "d"))
        second = second.selectExpr("id", "name", "seen", "tags", "nullif(op, 'i') AS op")
        assert sink.write(second, batch_of(1), lambda: None) == WriteResult(3, 0)
    result = {row["id"]: (row["name"], row["op"]) for row in rows_of(destination.engine)}
    assert result == {1: ("c", "u"), 3: ("y", None)}
    assert [str(row["seen"])[:19] for row in rows_of(destination.engine) if row["id"] == 1] == [
        "2026-03-29 01:00:02"
    ]
    assert count_of(destination.engine, "letters") == 1
    assert staged_rows(destination.engine) == 0


def staged_rows(engine: Engine) -> int:
    names = [name for name in inspect(engine).get_table_names() if "penstock_stage" in name]
    return sum(count_of(engine, name) for name in names)


@pytest.mark.parametrize("destination", [DRIVER[0], *STAGED], indirect=True)
def test_the_plan_runs_once_and_only_its_rows_count(
    spark: "SparkSession", destination: Destination
) -> None:
    """Rows of attempts whose tokens were not returned are not merged, and are removed."""
    ran = spark.sparkContext.accumulator(0)

    def count(rows: "Row") -> "Row":
        ran.add(1)
        return rows

    numbers = spark.range(0, 1000, 1, 2)
    counted = spark.createDataFrame(numbers.rdd.map(count), numbers.schema)
    with sink_for(spec_for(destination.url, writing=destination.writing)) as sink:
        begin(sink)
        sink.write(numbers, batch_of(0))
        for name in inspect(destination.engine).get_table_names():
            if "penstock_stage" in name:
                with destination.engine.begin() as connection:
                    connection.execute(text(f"INSERT INTO {name} VALUES (5, 'zombie')"))
        assert sink.write(counted, batch_of(1)) == WriteResult(1000)
        assert sink.write(numbers.where("id < 0"), batch_of(2)) == WriteResult(0)
    assert ran.value == 1000
    result = sorted(int(str(row["id"])) for row in rows_of(destination.engine))
    assert result == sorted([*range(1000)] * 2)
    assert staged_rows(destination.engine) == 0


@pytest.mark.parametrize("destination", STAGED, indirect=True)
def test_bad_rows_of_a_frame(spark: "SparkSession", destination: Destination) -> None:
    """Errors of executors are reported as clearly as those of the driver."""
    with destination.engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (id bigint PRIMARY KEY, name varchar(9))"))
    spec = spec_for(destination.url, mode="upsert", key=["id"], writing="staged")
    rows = frame_of(spark, (1, "a", ""), (2, "b", ""), (3, "c", "")).select("id", "name")
    null = rows.selectExpr("nullif(id, 3) AS id", "name")
    long = rows.selectExpr("id", "repeat('x', 20) AS name")
    twice = rows.selectExpr("id DIV 2 AS id", "name")
    with sink_for(spec) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match="key column id is NULL"):
            sink.write(null, batch_of(0))
        with pytest.raises(PipelineError, match=r"column .?name"):
            sink.write(long, batch_of(0))
        with pytest.raises(PipelineError, match="Set `order_by`"):
            sink.write(twice, batch_of(0))
        assert count_of(destination.engine, "results") == 0
        assert sink.write(rows, batch_of(0)) == WriteResult(3)
    assert count_of(destination.engine, "results") == 3
    assert staged_rows(destination.engine) == 0
