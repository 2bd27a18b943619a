"""Names from a pipeline file reach the database unchanged and quoted, or are refused (D3)."""

import pyarrow as pa
import pytest
from sqlalchemy import URL, Engine, text

from penstock.spark.errors import PipelineError, SparkPartError
from penstock.spark.run.static_tables import StaticTable
from penstock.spark.sinks.database.engines import open_engine, shown_url
from penstock.spark.sinks.database.names import (
    DatabaseKind,
    check_column_name,
    checked_table_name,
)
from tests.support.spark.database_sinks import (
    KEY,
    batch_of,
    begin,
    count_of,
    letters_at,
    rows_of,
    sink_for,
    spec_for,
    with_deletes,
)

ODD_NAMES = (
    'a"b', "a'b", "a\\", "x; DROP TABLE victim; --", "a/*b", "%s", "%(a)s", "100%", ":name", "?",
    "$1", "{x}", "(", "a.b", "select", "order", "straße", "strasse", "ſ", "s", "ﬁ", "fi", "é", "e",
    "\N{RIGHT-TO-LEFT MARK}r",
)  # fmt: skip
ODD_VALUES = ("'; DROP TABLE victim; --", "\\'", "%s %(a)s :a ?", 'a"b`c', "\x1b[31m\r\n", "\\")


def test_odd_names_and_values_are_stored_as_they_are(database_url: URL, engine: Engine) -> None:
    table = 'select"; DROP TABLE victim; -- %s :a'
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE victim (a INTEGER)"))
    rows = pa.table({name: [f"{v} of {name}" for v in ODD_VALUES] for name in ODD_NAMES})
    spec = spec_for(database_url, table=table, mode="upsert", key=ODD_NAMES[:2], delete_when="true")
    with sink_for(spec, dead_letter_table=f"dead {table}") as sink:
        begin(sink, owner="'; DROP TABLE victim; -- %s")
        kept = [False] * rows.num_rows
        sink.write_table(with_deletes(rows, kept), batch_of(0), letters_at(3, reason="'\\%s"))
        sink.write_table(with_deletes(rows, kept), batch_of(1))
        assert sorted(rows_of(engine, table), key=repr) == sorted(rows.to_pylist(), key=repr)
        static = StaticTable({"database": spec.database, "table": table})
        as_static = pa.Table.from_batches(static.batches(static.schema())).to_pylist()
        assert [dict(row) for row in as_static] == rows_of(engine, table)
        sink.write_table(with_deletes(rows, [True, *kept[1:]]), batch_of(2))
        assert len(rows_of(engine, table)) == rows.num_rows - 1
        sink.clear()
    assert count_of(engine, table) == count_of(engine, f"dead {table}") == 0
    assert count_of(engine, "victim") == 0


def test_a_name_in_another_case_is_the_column_that_the_database_takes_it_for(
    database_url: URL, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (id INTEGER PRIMARY KEY, name VARCHAR(9))"))
    rows = pa.table({"ID": [1], "Name": ["a"]})
    with sink_for(spec_for(database_url, mode="upsert", key=["ID"])) as sink:
        if engine.dialect.name == "postgresql":
            with pytest.raises(PipelineError, match="the table results has no column ID"):
                begin(sink)
        else:
            begin(sink)
            sink.write_table(rows, batch_of(0))
            assert rows_of(engine) == [{"id": 1, "name": "a"}]


def test_two_columns_for_one_column_of_the_table_are_refused(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/results.db"
    with sink_for(spec_for(url)) as sink:
        begin(sink)
        sink.write_table(pa.table({"a": [1]}), batch_of(0))
        with pytest.raises(PipelineError, match="is stored in the table's column a: rename one"):
            sink.write_table(pa.table({"a": [1], "A": [2]}), batch_of(1))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (DatabaseKind.SQLITE, "penstock_offset", "reserved for Penstock"),
        (DatabaseKind.SQLITE, "main.PENSTOCK_Batch", "reserved for Penstock"),
        (DatabaseKind.MYSQL, "pen\N{LATIN SMALL LETTER LONG S}tock_offset", "reserved"),
        (DatabaseKind.POSTGRESQL, "penstock_rows", "reserved for Penstock"),
        (DatabaseKind.POSTGRESQL, "public.penstock_stage_1", "reserved for Penstock"),
        (DatabaseKind.SQLITE, "sqlite_sequence", "reserved for SQLite"),
        (DatabaseKind.SQLITE, "temp.results", "dropped with its connection"),
        (DatabaseKind.POSTGRESQL, "pg_temp_3.results", "dropped with its connection"),
        (DatabaseKind.POSTGRESQL, "é" * 32, "table .* more than 63 bytes"),
        (DatabaseKind.POSTGRESQL, f"{'s' * 64}.results", "schema .* more than 63 bytes"),
        (DatabaseKind.MYSQL, f"{'s' * 65}.results", "schema .* more than 64 characters"),
        (DatabaseKind.MYSQL, "a`b", "backtick"),
        (DatabaseKind.MYSQL, "a ", "ends with a space"),
        (DatabaseKind.SQLITE, "a\0b", r"'a\\x00b' contains a control character"),
        (DatabaseKind.POSTGRESQL, "a\nb.c", r"'a\\nb' contains a control character"),
        (DatabaseKind.SQLITE, "a.", "the name of the table is empty"),
        (DatabaseKind.SQLITE, ".a", "the name of the schema is empty"),
    ],
)
def test_table_names_that_are_reserved_or_would_change_are_refused(
    kind: DatabaseKind, name: str, message: str
) -> None:
    with pytest.raises(PipelineError, match=message):
        checked_table_name(kind, name)


def test_columns_of_the_sink_itself_cannot_come_from_a_query(tmp_path: object) -> None:
    with pytest.raises(PipelineError, match="reserved for Penstock: rename it in the query"):
        check_column_name(DatabaseKind.SQLITE, "__PENSTOCK_delete")
    with sink_for(spec_for(f"sqlite:///{tmp_path}/results.db"), KEY) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match="the column __penstock_token has a name"):
            sink.write_table(pa.table({"__penstock_token": ["a"]}), batch_of(0))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:s3cr@et@h/db",
        "postgresql://u:s3cr@et:1@h/db",
        "postgresql://u:s3cr/et@h:port/db",
        "oracle://u:s3cret@h/db",
        "mysql://h/db?passwd=s3cret&unknown=1",
    ],
)
def test_no_part_of_a_password_is_in_an_error(address: str) -> None:
    try:
        shown = shown_url(open_engine(address, 1).url)
    except SparkPartError as error:
        shown = f"{error} {error.__cause__!r}"
    assert "s3cr" not in shown
    assert "et@" not in shown
    assert "et:1" not in shown
