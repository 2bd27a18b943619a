"""Append, upsert and delete do to a table what they do to a dict (D3)."""

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import URL, Engine, text

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database import result_table
from penstock.spark.sinks.database import sink as sink_module
from penstock.spark.sinks.database.rows import resolve_changes
from tests.support.spark.database_sinks import (
    batch_of,
    begin,
    by,
    count_of,
    rows_of,
    sink_for,
    spec_for,
    with_deletes,
)

# A shared table would contain rows of the last example.
numbers = count(1)

Change = tuple[str, int, int, str | None, bool]
"""Two columns of the key, the order, a value, and whether it deletes."""

SCHEMA = pa.schema(
    [("name", pa.string()), ("n", pa.int32()), ("at", pa.int64()), ("value", pa.string())]
)

changes = st.tuples(
    st.sampled_from(["a", "A", "a ", "ä", "'", "\\", "", "%s", "🎉"]),
    st.integers(0, 2),
    st.integers(0, 10**6),
    st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5),
    st.booleans(),
)
batches = st.lists(
    st.lists(changes, max_size=12, unique_by=lambda change: change[2]), min_size=1, max_size=4
)


def table_of(batch: Sequence[Change]) -> pa.Table:
    columns: list[tuple[Any, ...]] = list(zip(*batch, strict=True)) or [()] * 5
    rows = pa.table(
        [pa.array(columns[number], SCHEMA.field(number).type) for number in range(4)], SCHEMA
    )
    return with_deletes(rows, list(columns[4]))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=batches)
def test_upserts_and_deletes_agree_with_a_dict(
    database_url: URL, engine: Engine, batches: list[list[Change]]
) -> None:
    number = next(numbers)
    name = f"results_{number}"
    model: dict[tuple[str, int], tuple[int, str | None]] = {}
    spec = spec_for(
        database_url,
        table=name,
        mode="upsert",
        key=["n", "name"],
        order_by=["at"],
        delete_when="gone",
    )
    with sink_for(spec, f"key.{number}") as sink:
        begin(sink)
        for batch_id, batch in enumerate(batches):
            sink.write_table(table_of(batch), batch_of(batch_id))
            for text_, n, at, value, is_deleted in sorted(batch, key=lambda change: change[2]):
                if is_deleted:
                    model.pop((text_, n), None)
                else:
                    model[text_, n] = (at, value)
    result = {(row["name"], row["n"]): (row["at"], row["value"]) for row in rows_of(engine, name)}
    assert result == model
    assert count_of(engine, name) == len(model)


def test_appended_rows_add_up(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        for number in range(3):
            rows = pa.table({"n": [1, 1, number]})
            assert sink.write_table(rows, batch_of(number)).rows == 3
        empty = sink.write_table(pa.table({"n": pa.array([], pa.int64())}), batch_of(3))
        assert empty.rows == 0
    assert sorted(str(row["n"]) for row in rows_of(engine)) == list("011111112")[:9]


def test_many_rows(database_url: URL, engine: Engine) -> None:
    """More rows than fit into one statement, including deletes."""
    size = 25_000
    rows = pa.table({"id": range(size), "text": ["x" * 40] * size})
    spec = spec_for(database_url, mode="upsert", key=["id"], delete_when="gone")
    with sink_for(spec) as sink:
        begin(sink)
        sink.write_table(with_deletes(rows, [False] * size), batch_of(0))
        changes = with_deletes(rows, [n % 3 == 0 for n in range(size)])
        write_result = sink.write_table(changes, batch_of(1))
    assert write_result.rows == size
    result = by(rows_of(engine), "id")
    assert result.keys() == {n for n in range(size) if n % 3}


def test_a_key_twice_without_an_order(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url, mode="upsert", key=["id", "b"])) as sink:
        begin(sink)
        sink.write_table(pa.table({"id": [1], "b": ["x"], "c": [0]}), batch_of(0))
        twice = pa.table({"id": [2, 1, 2], "b": ["y", "y", "y"], "c": [1, 2, 3]})
        with pytest.raises(PipelineError, match=r"id = 2, b = 'y'.*Set `order_by`"):
            sink.write_table(twice, batch_of(1))
    assert count_of(engine, "results") == 1


def test_a_key_that_is_null(database_url: URL) -> None:
    with sink_for(spec_for(database_url, mode="upsert", key=["id"])) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match="key column id is NULL in 1 of 2 rows"):
            sink.write_table(pa.table({"id": [1, None]}), batch_of(0))


def test_the_last_row_in_order_is_stored(database_url: URL, engine: Engine) -> None:
    """NULL sorts first; of equal rows the last one counts."""
    spec = spec_for(database_url, mode="upsert", key=["id"], order_by=["a", "b"])
    rows = pa.table(
        {
            "id": [1, 1, 1, 2, 2, 3, 3],
            "a": [5, 7, 7, None, 1, 1, 1],
            "b": ["z", "b", "a", "x", None, "t", "t"],
            "c": [0, 1, 2, 3, 4, 5, 6],
        }
    )
    with sink_for(spec) as sink:
        begin(sink)
        assert sink.write_table(rows, batch_of(0)).rows == 3
    assert {row["id"]: row["c"] for row in rows_of(engine)} == {1: 1, 2: 4, 3: 6}


def test_nan_is_the_newest() -> None:
    """As in Spark, which orders staged rows."""
    rows = pa.table({"id": [1] * 4, "f": [2.0, math.nan, math.inf, None], "v": list("abcd")})
    assert resolve_changes(rows, ["id"], ["f"]).puts["v"].to_pylist() == ["b"]
    assert (
        resolve_changes(rows.filter([True, False, True, True]), ["id"], ["f"]).puts["v"][0].as_py()
        == "c"
    )


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.decimal128(38, 9)])
def test_rows_are_updated_by_numeric_keys(
    database_url: URL, engine: Engine, kind: pa.DataType
) -> None:
    """A FLOAT of MySQL differs from a number with few digits."""
    spec = spec_for(database_url, mode="upsert", key=["id"], delete_when="gone")
    numbers = [Decimal("0.1"), Decimal("1e-9"), Decimal("12345678901234567890"), Decimal(3)]
    if pa.types.is_floating(kind):
        keys = pa.array([float(number) for number in numbers], kind)
    else:
        keys = pa.array(numbers, kind)
    with sink_for(spec) as sink:
        begin(sink)
        for number in range(2):
            sink.write_table(with_deletes(pa.table({"id": keys}), [False] * 4), batch_of(number))
        sink.write_table(with_deletes(pa.table({"id": keys}), [True] * 3 + [False]), batch_of(2))
    assert [float(str(row["id"])) for row in rows_of(engine)] == [3.0]


def test_columns_used_only_in_conditions_need_not_be_in_the_table(
    database_url: URL, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (id bigint PRIMARY KEY, name varchar(9))"))
    spec = spec_for(
        database_url, mode="upsert", key=["id"], order_by=["seen"], delete_when="OP = 'gone'"
    )
    rows = pa.table(
        {"id": [1, 1, 2], "name": ["a", "b", "c"], "seen": [2, 1, 1], "op": list("uud")}
    )
    with sink_for(spec) as sink:
        begin(sink)
        sink.write_table(with_deletes(rows, [False, False, True]), batch_of(0))
        # A name inside of a string literal is not a column of the condition.
        more = rows.append_column("gone", pa.array([1, 2, 3]))
        with pytest.raises(PipelineError, match="column gone: the table has no such column"):
            sink.write_table(with_deletes(more, [False, False, True]), batch_of(1))
    assert rows_of(engine) == [{"id": 1, "name": "a"}]


def test_an_upsert_needs_a_unique_index(database_url: URL, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE results (id bigint, n bigint)"))
        connection.execute(text("CREATE UNIQUE INDEX two ON results (id, n)"))
    with (
        sink_for(spec_for(database_url, mode="upsert", key=["id"])) as sink,
        pytest.raises(PipelineError, match=r"CREATE UNIQUE INDEX … ON results \(id\)"),
    ):
        sink.open("one")
    with (
        sink_for(spec_for(database_url, mode="upsert", key=["x"])) as sink,
        pytest.raises(PipelineError, match="has no column x"),
    ):
        sink.open("one")
    with sink_for(spec_for(database_url, mode="upsert", key=["n", "id"])) as sink:
        begin(sink)
        assert sink.write_table(pa.table({"id": [1, 2], "n": [1, 1]}), batch_of(0)).rows == 2
        assert sink.write_table(pa.table({"id": [1, 2], "n": [1, 2]}), batch_of(1)).rows == 2
    assert count_of(engine, "results") == 3


def test_another_unique_index_in_mysql(database_url: URL, engine: Engine) -> None:
    """MySQL alone would replace the row with the other name; elsewhere it is an error later."""
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE results (id bigint PRIMARY KEY, name varchar(9) UNIQUE)")
        )
    with sink_for(spec_for(database_url, mode="upsert", key=["id"])) as sink:
        if engine.dialect.name == "mysql":
            with pytest.raises(PipelineError, match=r"besides the key \(id\), a unique index"):
                sink.open("one")
            return
        begin(sink)
        sink.write_table(pa.table({"id": [1], "name": ["a"]}), batch_of(0))
        with pytest.raises(PipelineError, match="same unique value"):
            sink.write_table(pa.table({"id": [2], "name": ["a"]}), batch_of(1))
    assert rows_of(engine) == [{"id": 1, "name": "a"}]


def test_a_table_without_transactions_in_mysql(database_url: URL, engine: Engine) -> None:
    if engine.dialect.name != "mysql":
        engine_option = ""
    else:
        engine_option = " ENGINE = MyISAM"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE results (id bigint){engine_option}"))
    with sink_for(spec_for(database_url)) as sink:
        if not engine_option:
            assert sink.open("one") is None
            return
        with pytest.raises(PipelineError, match="ALTER TABLE results ENGINE = InnoDB"):
            sink.open("one")


def test_upserts_as_in_gaussdb(
    database_url: URL, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL has GaussDB's MERGE too, since version 15."""
    merge = engine.dialect.name == "postgresql"
    monkeypatch.setattr(result_table, "needs_merge", lambda engine: merge)
    with sink_for(spec_for(database_url, mode="upsert", key=["id"])) as sink:
        begin(sink)
        sink.write_table(pa.table({"id": [1, 2], "v": ["a", "b"]}), batch_of(0))
        sink.write_table(pa.table({"id": [2, 3], "v": ["c", "d"]}), batch_of(1))
    assert {row["id"]: row["v"] for row in rows_of(engine)} == {1: "a", 2: "c", 3: "d"}


def test_rows_of_keys_only(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url, mode="upsert", key=["id"])) as sink:
        begin(sink)
        for number in range(2):
            sink.write_table(pa.table({"id": ["a", "b"]}), batch_of(number))
    assert count_of(engine, "results") == 2


def test_incompatible_settings_are_refused(database_url: URL) -> None:
    with pytest.raises(PipelineError, match="no `key`"):
        sink_module.DatabaseSink(spec_for(database_url, mode="upsert"), "a.b")
    with pytest.raises(PipelineError, match="needs `mode: upsert`"):
        sink_module.DatabaseSink(spec_for(database_url, delete_when="x"), "a.b")
    if database_url.get_backend_name() == "sqlite":
        with pytest.raises(PipelineError, match="which SQLite is not"):
            sink_module.DatabaseSink(spec_for(database_url, writing="staged"), "a.b")
    with pytest.raises(PipelineError, match="1 to 200 characters"):
        sink_module.DatabaseSink(spec_for(database_url), "a" * 201)
    with sink_for(spec_for(database_url, mode="upsert", key=["x"])) as sink:
        begin(sink)
        with pytest.raises(PipelineError, match="`key` names the column x, and the view"):
            sink.write_table(pa.table({"id": [1]}), batch_of(0))
