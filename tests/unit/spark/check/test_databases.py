"""Tables that are joined with and tables of sinks, as the databases have them."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock.spark.check.databases import LiveDatabases
from penstock.spark.check.validate import validate
from penstock.spark.pipeline.model import (
    PipelineSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
)
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from tests.support.spark.databases import engine_for, sqlite_url


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = sqlite_url(tmp_path)
    with engine_for(url) as engine, engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (id BIGINT, since TIMESTAMP, city TEXT)"))
        connection.execute(text("CREATE TABLE results (id BIGINT PRIMARY KEY, city TEXT)"))
    return str(url)


def _spec(
    database: str,
    sql: str = "SELECT s.id, c.city FROM s JOIN c ON s.id = c.id",
    *,
    table: TableSpec | None = None,
    target: str = "results",
    create_table: bool = True,
) -> PipelineSpec:
    return PipelineSpec(
        name="p",
        bootstrap_servers="h:1",
        sources=(SourceSpec(name="s", topics=("t",), schema="id bigint"),),
        tables=(table or TableSpec(name="c", database=database, table="customers"),),
        steps=(StepSpec(name="joined", sql=sql),),
        sinks=(
            DatabaseSinkSpec(
                name="out",
                view="joined",
                database=database,
                table=target,
                create_table=create_table,
            ),
        ),
    )


def _found(spec: PipelineSpec) -> list[str]:
    return [str(each) for each in validate(spec, databases=LiveDatabases())]


def test_columns_of_tables_are_asked_for(database: str) -> None:
    assert _found(_spec(database)) == []
    misspelt = _spec(database, "SELECT s.id, c.town AS city FROM s JOIN c ON s.id = c.id")
    assert _found(misspelt) == [
        "steps.joined.sql: c has no column town (there is: id, since, city) (column 16)"
    ]
    assert validate(misspelt) == []


def test_a_table_that_is_not_there(database: str) -> None:
    table = TableSpec(name="c", database=database, table="costumers")
    assert _found(_spec(database, table=table)) == [
        "tables.c.database: there is no table costumers in this database: create it first"
    ]


def test_the_table_of_a_sink_must_take_the_columns(database: str) -> None:
    more = "SELECT s.id, c.city, c.since AS at FROM s JOIN c ON s.id = c.id"
    assert _found(_spec(database, more)) == [
        "sinks.out.table: the table results has no column at, which joined has (there is: id, city)"
    ]
    assert _found(_spec(database, more, target="new")) == []
    assert _found(_spec(database, more, target="new", create_table=False)) == [
        "sinks.out.table: there is no table new, and create_table is false: create it"
    ]


def test_columns_that_only_decide_need_not_be_in_the_table(database: str) -> None:
    more = "SELECT s.id, c.city, c.since AS at, c.city AS op FROM s JOIN c ON s.id = c.id"
    spec = _spec(database, more)
    [sink] = spec.sinks
    assert isinstance(sink, DatabaseSinkSpec)
    upserts = replace(
        sink, mode="upsert", key=("id",), order_by=("at",), delete_when="OP = 'at city'"
    )
    assert _found(replace(spec, sinks=(upserts,))) == []
    assert len(_found(replace(spec, sinks=(replace(upserts, order_by=("id",)),)))) == 1


def test_a_database_that_cannot_be_read(tmp_path: Path) -> None:
    away = "postgresql://u:secret@127.0.0.1:1/none"
    problems = _found(_spec(away))
    assert [each.split(": ")[0] for each in problems] == ["sinks.out.database", "tables.c.database"]
    assert all("cannot be read" in each and "secret" not in each for each in problems)
    assert "there is no such kind of database" in _found(_spec("nosuch://h/d"))[0]

    fresh = f"sqlite:///{tmp_path / 'new.sqlite'}"
    table = TableSpec(name="c", path="s3://b/c", schema="id bigint, city string")
    assert _found(_spec(fresh, table=table)) == []
    assert not (tmp_path / "new.sqlite").exists()


def test_columns_of_files_are_read(database: str, tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text("id,city\n1,Ulm\n")
    table = TableSpec(name="c", path=str(tmp_path / "customers.csv"))
    assert _found(_spec(database, table=table)) == []
    misspelt = _spec(database, "SELECT s.id, c.town FROM s, c WHERE c.id = s.id", table=table)
    assert any("c has no column town" in each for each in _found(misspelt))
    away = TableSpec(name="c", path=str(tmp_path / "nothing.csv"))
    assert "there is no file or directory" in _found(_spec(database, table=away))[0]
