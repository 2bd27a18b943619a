"""Static tables as Arrow: from databases and from files."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from penstock.spark.errors import PipelineError
from penstock.spark.run.static_tables import StaticTable
from tests.support.spark.databases import sqlite_url


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = sqlite_url(tmp_path)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE people (id INTEGER, name VARCHAR(20), born DATE, seen TIMESTAMP, "
                "balance NUMERIC(10, 2), score FLOAT, photo BLOB, is_new BOOLEAN)"
            )
        )
        connection.execute(
            text(
                "INSERT INTO people VALUES (1, 'Ada', '1815-12-10', '2026-01-01 12:00:00.000000', "
                "12.5, 0.5, x'00ff', 1), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
            )
        )
    engine.dispose()
    return url.render_as_string()


def test_a_table_of_a_database_has_the_types_of_its_columns(database: str) -> None:
    table = StaticTable({"database": database, "table": "people"})
    batches = pa.Table.from_batches(list(table.batches(table.schema())))
    assert [str(column.type) for column in batches.schema] == [
        "int64",
        "string",
        "date32[day]",
        "timestamp[us, tz=UTC]",
        "decimal128(10, 2)",
        "double",
        "binary",
        "bool",
    ]
    first, second = batches.to_pylist()
    assert (first["name"], first["balance"]) == ("Ada", Decimal("12.50"))
    assert first["seen"].isoformat() == "2026-01-01T12:00:00+00:00"
    assert (first["photo"], first["is_new"]) == (b"\x00\xff", True)
    assert [name for name, value in second.items() if value is not None] == ["id"]
    assert table.count() == 2


def test_only_requested_columns_are_read(database: str) -> None:
    table = StaticTable({"database": database, "table": "people"})
    schema = pa.schema([("name", pa.string()), ("id", pa.int32())])
    [batch] = table.batches(schema)
    assert batch.schema == schema
    with pytest.raises(PipelineError, match="has no column age"):
        list(table.batches(pa.schema([("age", pa.int32())])))


def test_the_error_of_a_wrong_type_names_the_column(database: str) -> None:
    table = StaticTable({"database": database, "table": "people"})
    with pytest.raises(PipelineError, match="column name of table people is not of type int32"):
        list(table.batches(pa.schema([("name", pa.int32())])))


def test_a_missing_table_is_an_error(database: str) -> None:
    with pytest.raises(PipelineError, match="no table nobody"):
        StaticTable({"database": database, "table": "nobody"}).schema()


def test_a_missing_database_is_not_created(tmp_path: Path) -> None:
    file = tmp_path / "typo.db"
    with pytest.raises(PipelineError, match="static table people: there is no file"):
        StaticTable({"database": f"sqlite:///{file}", "table": "people"}).schema()
    assert not file.exists()


def test_the_file_format_follows_the_file_name_extension(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    (tmp_path / "directory").mkdir()
    pq.write_table(rows, tmp_path / "directory" / "part-0.parquet")
    (tmp_path / "t.csv").write_text("id,name\n1,a\n2,b\n")
    lines = "".join(json.dumps(row) + "\n" for row in rows.to_pylist())
    (tmp_path / "t.jsonl").write_text(lines)
    for name in ("directory", "t.csv", "t.jsonl"):
        table = StaticTable({"path": str(tmp_path / name)})
        batches = pa.Table.from_batches(list(table.batches(table.schema())))
        assert batches.to_pylist() == rows.to_pylist(), name
        assert table.count() == 2
    pq.write_table(rows, tmp_path / "directory" / "part-1.parquet")
    assert StaticTable({"path": str(tmp_path / "directory")}).count() == 4


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read"):
        StaticTable({"path": str(tmp_path / "nothing")}).schema()
