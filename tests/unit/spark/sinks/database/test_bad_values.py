"""A value that does not fit a column stops the pipeline; nothing of its batch is stored (D3)."""

from decimal import Decimal

import pyarrow as pa
import pytest
from sqlalchemy import URL, Engine, text

from penstock.spark.errors import PipelineError
from penstock.spark.progress import StoredProgress
from penstock.spark.sinks.database.kind import Mode
from tests.support.spark.database_sinks import at, batch_of, begin, count_of, sink_for, spec_for

TABLE = (
    "CREATE TABLE results (id integer NOT NULL, name varchar(3), small smallint, "
    "price decimal(4, 2), f double precision, doc {json}, PRIMARY KEY (id))"
)


BAD: dict[str, pa.Array] = {
    "name": pa.array(["ab", "abcd"]),
    "small": pa.array([1, 40_000], pa.int32()),
    "price": pa.array([Decimal("1"), Decimal("100.00")], pa.decimal128(5, 2)),
    "id": pa.array([1000, 2**40], pa.int64()),
    "doc": pa.array(["{}", "{"]),
    "f": pa.array([1.0, float("nan")]),
}
SQLITE_KEEPS = {"name", "small", "price", "id", "doc"}
"""SQLite has no lengths; it must not change such values either."""


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_values_that_do_not_fit(database_url: URL, engine: Engine, mode: Mode) -> None:
    kind = engine.dialect.name
    accepted_columns = {"sqlite": SQLITE_KEEPS, "postgresql": {"f"}, "mysql": set()}[kind]
    statement = TABLE.format(json="text" if kind == "sqlite" else "json")
    with engine.begin() as connection:
        connection.execute(text(statement))
    for number, (column, bad) in enumerate(BAD.items()):
        rows = pa.table({"id": pa.array([10 * number, 10 * number + 1])} | {column: bad})
        with sink_for(spec_for(database_url, mode=mode, key=["id"])) as sink:
            begin(sink)
            before = count_of(engine, "results")
            if column in accepted_columns:
                assert sink.write_table(rows, batch_of(number)).rows == 2
                continue
            message = rf"(column|CONSTRAINT) [`'\"]?(results.)?{column}"
            with pytest.raises(PipelineError, match=message) as caught:
                sink.write_table(rows, batch_of(number))
            assert "Nothing of the batch was stored" in str(caught.value)
            assert count_of(engine, "results") == before
            # The pipeline continues after the query is fixed.
            good = pa.table({"id": [10 * number + 2]})
            assert sink.write_table(good, batch_of(number)).rows == 1
            assert sink.open("two") == StoredProgress(at(10 * number + 10), "q1", number)


def test_null_in_a_column_that_is_not_nullable(database_url: URL, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (id integer, name varchar(9) NOT NULL)"))
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match=r"name.*Nothing of the batch was stored"):
            sink.write_table(pa.table({"id": [1, 2], "name": ["a", None]}), batch_of(0))
    assert count_of(engine, "results") == 0


def test_a_row_that_exists_already(database_url: URL, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (id integer PRIMARY KEY)"))
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        sink.write_table(pa.table({"id": [1]}), batch_of(0))
        with pytest.raises(PipelineError, match="To replace rows use `mode: upsert`"):
            sink.write_table(pa.table({"id": [2, 1]}), batch_of(1))
    assert count_of(engine, "results") == 1


def test_the_character_nul(database_url: URL, engine: Engine) -> None:
    rows = pa.table({"id": [1], "name": ["a\0b"]})
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        if engine.dialect.name == "postgresql":
            with pytest.raises(PipelineError, match="column name: a text has a character NUL"):
                sink.write_table(rows, batch_of(0))
        else:
            assert sink.write_table(rows, batch_of(0)).rows == 1


def test_text_that_the_column_cannot_write(database_url: URL, engine: Engine) -> None:
    """An existing table with another character set."""
    latin = " CHARACTER SET latin1" if engine.dialect.name == "mysql" else ""
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE results (name varchar(9){latin})"))
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        sink.write_table(pa.table({"name": ["ä"]}), batch_of(0))
        if latin:
            with pytest.raises(PipelineError, match=r"column .*name"):
                sink.write_table(pa.table({"name": ["漢"]}), batch_of(1))
        else:
            assert sink.write_table(pa.table({"name": ["漢"]}), batch_of(1)).rows == 1


def test_a_row_longer_than_a_packet(database_url: URL, engine: Engine) -> None:
    rows = pa.table({"name": ["x" * (17 << 20)]})
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        if engine.dialect.name == "mysql":
            with pytest.raises(PipelineError, match="max_allowed_packet"):
                sink.write_table(rows, batch_of(0))
        else:
            assert sink.write_table(rows, batch_of(0)).rows == 1
