"""Static tables in all kinds of databases, and a stream joined with them (D2)."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from sqlalchemy import URL

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import StepSpec, TableSpec
from penstock.spark.run.static_tables import StaticTable
from penstock.testing import Broker
from tests.support.spark.databases import MariaDbServer, PostgreSqlServer, engine_for, sqlite_url
from tests.support.spark.pipelines import PipelineScenario, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 25_000
"""More rows than are read at a time."""


def change(url: URL, *statements: str) -> None:
    with engine_for(url) as engine, engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def table_of(url: URL, table: str) -> StaticTable:
    return StaticTable({"database": url.render_as_string(hide_password=False), "table": table})


def rows_of(table: StaticTable) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for batch in table.batches(table.schema()):
        rows += batch.to_pylist()
    return rows


def test_types_of_postgresql(postgresql: PostgreSqlServer) -> None:
    url = postgresql.fresh()
    change(
        url,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id bigint, born date, seen timestamptz, at timestamp, "
        "balance numeric(10, 2), free numeric, long numeric(50, 5), ratio double precision, "
        "single real, flag boolean, photo bytea, uid uuid, doc jsonb, tags text[])",
        "INSERT INTO shop.t VALUES (1, '1815-12-10', '2026-01-01 12:00+02', '2026-01-01 12:00', "
        "12.5, 1.5, 7, 0.1, 0.25, true, '\\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', "
        """'{"a": [1]}', '{x,y}')""",
        "INSERT INTO shop.t (id) VALUES (2)",
    )
    table = table_of(url, "shop.t")
    first, second = rows_of(table)
    assert first == {
        "id": 1,
        "born": date(1815, 12, 10),
        "seen": datetime(2026, 1, 1, 10, tzinfo=UTC),
        "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "balance": Decimal("12.50"),
        "free": Decimal("1.5"),
        "long": Decimal(7),
        "ratio": 0.1,
        "single": 0.25,
        "flag": True,
        "photo": b"\x00\xff",
        "uid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "doc": '{"a": [1]}',
        "tags": '["x", "y"]',
    }
    assert [name for name, value in second.items() if value is not None] == ["id"]
    assert table.schema().field("free").type == pa.decimal128(38, 18)


def test_types_of_mariadb(mariadb: MariaDbServer) -> None:
    url = mariadb.fresh()
    change(
        url,
        "CREATE TABLE t (id BIGINT UNSIGNED, born DATE, seen TIMESTAMP NULL, at DATETIME(6), "
        "balance DECIMAL(10, 2), long_one DECIMAL(65, 30), ratio DOUBLE, single FLOAT, "
        "flag BOOLEAN, photo BLOB, doc JSON, color ENUM('red', 'blue'), marks SET('b', 'a'))",
        "INSERT INTO t VALUES (1, '1815-12-10', '2026-01-01 12:00:00', "
        "'2026-01-01 12:00:00.25', 12.5, 7.5, 0.1, 0.25, true, x'00ff', "
        """'{"a": [1]}', 'red', 'a,b')""",
        "INSERT INTO t (id) VALUES (2)",
    )
    table = table_of(url, "t")
    first, second = rows_of(table)
    assert first == {
        "id": 1,
        "born": date(1815, 12, 10),
        "seen": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "at": datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC),
        "balance": Decimal("12.50"),
        "long_one": Decimal("7.5"),
        "ratio": 0.1,
        "single": 0.25,
        "flag": 1,
        "photo": b"\x00\xff",
        "doc": '{"a": [1]}',
        "color": "red",
        "marks": "a,b",
    }
    assert [name for name, value in second.items() if value is not None] == ["id"]
    change(url, f"UPDATE t SET id = {2**64 - 1} WHERE id = 2")
    with pytest.raises(PipelineError, match="column id of table t is not of type int64"):
        rows_of(table)
    [batch] = table.batches(pa.schema([("id", pa.decimal128(20))]))
    assert batch.column(0).to_pylist() == [Decimal(1), Decimal(2**64 - 1)]


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mariadb", marks=pytest.mark.long)])
def test_a_table_is_read_in_pieces_and_may_be_read_in_part(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: PostgreSqlServer | MariaDbServer = request.getfixturevalue(kind)
    url = server.fresh()
    numbers = f"generate_series(1, {MANY})" if kind == "postgresql" else f"seq_1_to_{MANY}"
    column = "s.s" if kind == "postgresql" else "s.seq"
    change(url, "CREATE TABLE t (id bigint)", f"INSERT INTO t SELECT {column} FROM {numbers} s")
    table = table_of(url, "t")
    assert table.count() == MANY
    sizes = [batch.num_rows for batch in table.batches(table.schema())]
    assert sizes == [10_000, 10_000, 5_000]
    pieces = iter(table.batches(table.schema()))
    assert next(pieces).num_rows == 10_000
    pieces.close()  # type: ignore[attr-defined]
    with pytest.raises(PipelineError, match="there is no table nobody in "):
        table_of(url, "nobody").schema()


@pytest.mark.long
def test_a_stream_is_joined_with_the_current_rows_of_tables(
    spark: "SparkSession",
    broker: Broker,
    tmp_path: Path,
    postgresql: PostgreSqlServer,
    mariadb: MariaDbServer,
) -> None:
    urls = {
        "titles": sqlite_url(tmp_path),
        "prices": postgresql.fresh(),
        "owners": mariadb.fresh(),
    }
    change(
        urls["titles"],
        "CREATE TABLE t (page varchar(20), title varchar(20))",
        "INSERT INTO t VALUES ('home', 'Home'), ('cart', 'Cart')",
    )
    change(
        urls["prices"],
        "CREATE TABLE t (page text, price numeric(10, 2))",
        "INSERT INTO t VALUES ('home', 1.5)",
    )
    change(
        urls["owners"],
        "CREATE TABLE t (page varchar(20), weight double)",
        "INSERT INTO t VALUES ('home', 0.5), ('cart', 0.25)",
    )
    step = StepSpec(
        name="joined",
        sql="SELECT id, title, price, weight FROM clicks JOIN titles USING (page) "
        "LEFT JOIN prices USING (page) JOIN owners USING (page)",
    )
    tables = tuple(
        TableSpec(name=name, database=url.render_as_string(hide_password=False), table="t")
        for name, url in urls.items()
    )
    scenario = PipelineScenario(
        spark, broker, tmp_path, steps=(step,), view="joined", tables=tables
    )
    scenario.produce([click(1), click(2, page="cart"), click(3, page="nowhere")])
    scenario.once()
    change(urls["prices"], "INSERT INTO t VALUES ('cart', 2)")
    change(urls["owners"], "UPDATE t SET weight = 0.75")
    scenario.produce([click(4, page="cart")])
    scenario.once()
    assert sorted(tuple(row.values()) for row in scenario.memory.rows) == [
        (1, "Home", Decimal("1.50"), 0.5),
        (2, "Cart", None, 0.25),
        (4, "Cart", Decimal("2.00"), 0.75),
    ]
