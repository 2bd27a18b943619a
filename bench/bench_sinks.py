"""The database sink with `writing: driver`, without Spark: rows per second, committed."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
from sqlalchemy import URL, create_engine

from bench.report import Row, at_least, best_seconds
from penstock.core.ids import TopicPartition
from penstock.spark.progress import Batch, Progress, SourceOffsets
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.database.sink import DatabaseSink
from tests.support.spark.databases import MariaDbServer, PostgreSqlServer, sqlite_url

ROWS = 100_000
REPEATS = 3


def run() -> list[Row]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgresql = stack.enter_context(PostgreSqlServer(durable=True))
        mariadb = stack.enter_context(MariaDbServer(durable=True))
        places = {
            "SQLite": sqlite_url(directory),
            "PostgreSQL": postgresql.fresh(),
            "MariaDB": mariadb.fresh(),
        }
        return [row for name, url in places.items() for row in measured(name, url)]


def measured(name: str, url: URL) -> Iterator[Row]:
    with sink(url, upsert=False) as appending:
        appended = ROWS / best_seconds(appending, REPEATS)
    yield Row(f"{name}: appended", appended, "rows/s")
    if name == "PostgreSQL":
        by_rows = ROWS / best_seconds(lambda: copy_rows(url, orders()), REPEATS)
        yield at_least(f"{name}: of COPY BINARY of Python's rows", appended / by_rows, "x", 1)
    with sink(url, upsert=True) as upserting:
        upserting()
        yield Row(f"{name}: replaced", ROWS / best_seconds(upserting, REPEATS), "rows/s")


def copy_rows(url: URL, rows: pa.Table) -> None:
    """Writes rows of Python objects in PostgreSQL's binary format, for comparison."""
    engine = create_engine(url)
    with engine.begin() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        with (
            driver.cursor() as cursor,
            cursor.copy(
                "COPY appended (id, customer, amount, at, pieces) FROM STDIN (FORMAT binary)"
            ) as copy,
        ):
            copy.set_types(["int8", "text", "float8", "timestamptz", "int4"])
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                copy.write_row(row)
    engine.dispose()


class Batches:
    """Each call writes and commits one batch of the same rows."""

    def __init__(self, sink: DatabaseSink) -> None:
        self._sink = sink
        self._numbers = count()
        self._rows = orders()

    def __call__(self) -> None:
        number = next(self._numbers)
        self._sink.write_table(self._rows, Batch("bench", number, at(number), at(number + 1)))


@contextmanager
def sink(url: URL, *, upsert: bool) -> Iterator[Batches]:
    table = "replaced" if upsert else "appended"
    spec = DatabaseSinkSpec(
        name=table,
        view="orders",
        database=url.render_as_string(hide_password=False),
        table=table,
        mode="upsert" if upsert else "append",
        key=("id",) if upsert else (),
    )
    opened = DatabaseSink(spec, f"bench.{table}")
    try:
        opened.open("bench")
        opened.begin_at(at(0))
        yield Batches(opened)
    finally:
        opened.close()


def at(number: int) -> Progress:
    return {"orders": SourceOffsets({TopicPartition("orders", 0): number}, source="orders")}


def orders() -> pa.Table:
    """About 50 bytes a row: two numbers, a text, a price and a time."""
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS)),
            "customer": pa.array([f"customer {number % 1000}" for number in range(ROWS)]),
            "amount": pa.array(rng.random(ROWS)),
            "at": pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us", "UTC")),
            "pieces": pa.array(rng.integers(0, 100, ROWS).astype("int32")),
        }
    )
