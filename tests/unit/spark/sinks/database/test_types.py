"""Values of every type are stored and read back unchanged, in each database (D3)."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from sqlalchemy import URL, Engine, text

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.sink import DatabaseSink
from tests.support.spark.database_sinks import (
    KEY,
    batch_of,
    begin,
    letters_at,
    rows_of,
    sink_for,
    spec_for,
)

NOW = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)

COLUMNS: dict[str, pa.Array] = {
    "id": pa.array([1, 2, 3], pa.int64()),
    "flag": pa.array([True, False, None]),
    "i8": pa.array([127, -128, None], pa.int8()),
    "i16": pa.array([32767, -32768, None], pa.int16()),
    "i32": pa.array([2**31 - 1, -(2**31), None], pa.int32()),
    "i64": pa.array([2**63 - 1, -(2**63), None], pa.int64()),
    "f32": pa.array([1.5, -0.25, None], pa.float32()),
    "f64": pa.array([0.1, 1.7976931348623157e308, None], pa.float64()),
    "price": pa.array([Decimal("12.30"), Decimal("-99999999.99"), None], pa.decimal128(10, 2)),
    "wide": pa.array(
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("0.0000000001"), None],
        pa.decimal128(38, 10),
    ),
    "text": pa.array(["ä 🎉 'x' \"y\" \\ %s %(a)s\n\r\t,;--", "", None]),
    "long": pa.array(["x" * 70_000, "NULL", None], pa.large_string()),
    "raw": pa.array([bytes(range(256)), b"", None], pa.binary()),
    "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
    "moment": pa.array([NOW, FIRST, None], pa.timestamp("us", "Europe/Berlin")),
    "local": pa.array([LAST, FIRST, None], pa.timestamp("us")),
    "clock": pa.array([time(23, 59, 59, 999999), time(0), None], pa.time64("ns")),
    "took": pa.array([timedelta(days=1, microseconds=1), timedelta(0), None], pa.duration("us")),
    "items": pa.array([[1, None, 3], [], None], pa.list_(pa.int32())),
    "who": pa.array(
        [{"name": "o'x", "at": NOW}, {"name": None, "at": None}, None],
        pa.struct([("name", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
    ),
    "tags": pa.array([[("a", 1)], [("b", 2)], None], pa.map_(pa.string(), pa.int64())),
    "order by": pa.array(["a", "b", None]).dictionary_encode(),
    'q"%': pa.array([1, 2, None], pa.int32()),
}


def test_every_type_is_read_back(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url, mode="upsert", key=["id"])) as sink:
        begin(sink)
        assert sink.write_table(pa.table(COLUMNS), batch_of(0)).rows == 3
        # Rows are matched with those of the first batch.
        assert sink.write_table(pa.table(COLUMNS), batch_of(1)).rows == 3
    first, second, third = sorted(rows_of(engine), key=lambda row: str(row["id"]))
    assert [value for name, value in third.items() if name != "id"] == [None] * (len(COLUMNS) - 1)
    for number, row in enumerate((first, second)):
        for name, column in COLUMNS.items():
            value = column[number].as_py()
            if isinstance(value, float):
                assert float(str(row[name])) == value, name
            else:
                assert comparable(row[name]) == expected(value), name


def comparable(value: object) -> object:
    """Databases without such types store times in UTC, and documents as text."""
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None) if value.tzinfo is None else in_utc(value))
    if isinstance(value, date | time):
        return str(value)
    if isinstance(value, float | int | Decimal):
        return Decimal(repr(value) if isinstance(value, float) else value)
    if isinstance(value, str):
        return comparable_text(value)
    return value


def in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC).replace(tzinfo=None)


def comparable_text(value: str) -> object:
    try:
        loads = json.loads(value)
    except ValueError:
        return value.removesuffix(".000000")
    if isinstance(loads, dict | list):
        return loads
    try:
        return Decimal(value)
    except ArithmeticError:
        return value


def expected(value: object) -> object:
    if isinstance(value, datetime):
        return str(in_utc(value) if value.tzinfo else value)
    if isinstance(value, timedelta):
        return Decimal(value // timedelta(microseconds=1))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    if isinstance(value, dict):
        return {
            name: item.isoformat().replace("+00:00", "Z") if isinstance(item, datetime) else item
            for name, item in value.items()
        }
    if isinstance(value, list | bytes):
        return value
    return comparable(value)


def test_an_empty_map_is_an_object(database_url: URL, engine: Engine) -> None:
    rows = pa.table({"tags": pa.array([[]], pa.map_(pa.string(), pa.int64()))})
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        sink.write_table(rows, batch_of(0))
    assert comparable(rows_of(engine)[0]["tags"]) == {}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.nulls(1), "NULL in every row"),
        (pa.array([1], pa.uint64()), "its type is uint64"),
        (pa.array([1], pa.timestamp("ns")), "finer than microseconds"),
        (pa.array([[(True, 1)]], pa.map_(pa.bool_(), pa.int8())), "whose keys are bool"),
        (
            pa.array([[[(Decimal("1.5"), 1)]]], pa.list_(pa.map_(pa.decimal128(2, 1), pa.int8()))),
            r"whose keys are decimal128\(2, 1\)",
        ),
        (
            pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8())),
            "x cannot be written as JSON: .*duplicate key",
        ),
        (
            pa.array([[4_000_000]], pa.list_(pa.date32())),
            "x cannot be written as JSON: .*out of range",
        ),
    ],
)
def test_columns_that_cannot_be_stored(database_url: URL, column: pa.Array, message: str) -> None:
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match=message):
            sink.write_table(pa.table({"x": column}), batch_of(0))


CREATE = {
    "missing": ("CREATE TABLE results (id bigint)", "column name: the table has no such column"),
    "other type": (
        "CREATE TABLE results (id bigint, name integer)",
        "column name: its values are string and the column is INTEGER",
    ),
    "not filled": (
        "CREATE TABLE results (id bigint, name varchar(9), must integer NOT NULL)",
        "column must is NOT NULL",
    ),
}


@pytest.mark.parametrize("case", CREATE)
def test_a_table_that_does_not_fit(database_url: URL, engine: Engine, case: str) -> None:
    statement, message = CREATE[case]
    with engine.begin() as connection:
        connection.execute(text(statement))
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match=message):
            sink.write_table(pa.table({"id": [1], "name": ["a"]}), batch_of(0))


def test_digits_are_not_rounded_away(database_url: URL, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (price decimal(10, 2))"))
    rows = pa.table({"price": pa.array([Decimal("1.005")], pa.decimal128(10, 3))})
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match=r"CAST\(… AS DECIMAL\(10, 2\)\)"):
            sink.write_table(rows, batch_of(0))


def test_sqlite_has_no_long_decimals(database_url: URL, engine: Engine) -> None:
    """A numeric column would round them to floats."""
    number = Decimal("1234567890123456.78")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (price decimal(18, 2))"))
    rows = pa.table({"price": pa.array([number], pa.decimal128(18, 2))})
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        if engine.dialect.name == "sqlite":
            with pytest.raises(PipelineError, match="18 digits, of which SQLite stores 15"):
                sink.write_table(rows, batch_of(0))
            return
        sink.write_table(rows, batch_of(0))
    assert rows_of(engine) == [{"price": number}]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_years_that_a_database_does_not_have(database_url: URL, kind: pa.DataType) -> None:
    """Arrow would write a wrong year for the last of them."""
    for value in (
        (-(2**31), 2**31 - 1) if pa.types.is_date(kind) else (-(10**17), 10**18, 2**63 - 1)
    ):
        with sink_for(spec_for(database_url)) as sink:
            begin(sink)
            with pytest.raises(
                PipelineError, match=r"column.*d\b.*Nothing of the batch was stored"
            ):
                sink.write_table(pa.table({"d": pa.array([value, None], kind)}), batch_of(0))


def test_a_table_with_more_columns(database_url: URL, engine: Engine) -> None:
    """Columns that have a default, are nullable or are generated need no values."""
    counted = {
        "sqlite": "n integer PRIMARY KEY",
        "postgresql": "n serial PRIMARY KEY",
        "mysql": "n integer AUTO_INCREMENT PRIMARY KEY",
    }[engine.dialect.name]
    with engine.begin() as connection:
        connection.execute(
            text(f"CREATE TABLE results ({counted}, ID bigint, note text, d integer DEFAULT 7)")
        )
    name = "id"
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        sink.write_table(pa.table({name: [5, 6]}), batch_of(0))
    result = [(row["n"], row.get("ID", row.get("id")), row["d"]) for row in rows_of(engine)]
    assert sorted(result) == [(1, 5, 7), (2, 6, 7)]


def test_a_missing_table_is_created_only_if_requested(database_url: URL) -> None:
    with sink_for(spec_for(database_url, create_table=False)) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match="table results is missing"):
            sink.write_table(pa.table({"id": [1]}), batch_of(0))


def test_names_that_would_be_cut_off(database_url: URL, engine: Engine) -> None:
    name = "n" * 70
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        if engine.dialect.name == "sqlite":
            assert sink.write_table(pa.table({name: [1]}), batch_of(0)).rows == 1
        else:
            with pytest.raises(PipelineError, match=r"more than (63 bytes|64 characters)"):
                sink.write_table(pa.table({name: [1]}), batch_of(0))


def test_long_names_of_tables(database_url: URL, engine: Engine) -> None:
    """PostgreSQL counts bytes, MySQL characters."""
    name = "é" * 40
    if engine.dialect.name == "postgresql":
        for names in ((name, "letters"), ("results", name)):
            with pytest.raises(PipelineError, match=r"more than 63 bytes"):
                DatabaseSink(
                    spec_for(database_url, table=names[0]), KEY, dead_letter_table=names[1]
                )
        return
    with sink_for(spec_for(database_url, table=name), dead_letter_table=f"{name}_") as sink:
        begin(sink)
        assert sink.write_table(pa.table({name: [1]}), batch_of(0), letters_at(1)).rows == 1
    assert rows_of(engine, name) == [{name: 1}]


@pytest.mark.parametrize("name", ["penstock_offset", "Penstock_Rows", "other.penstock_stage_1"])
def test_names_of_penstocks_own_tables_are_refused(database_url: URL, name: str) -> None:
    """Results would be mixed with Penstock's own rows, or lost in a temporary table."""
    with pytest.raises(PipelineError, match="name the table otherwise"):
        DatabaseSink(spec_for(database_url, table=name), KEY)
    with pytest.raises(PipelineError, match="name the table otherwise"):
        DatabaseSink(spec_for(database_url), KEY, dead_letter_table=name)
