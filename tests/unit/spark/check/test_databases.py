"""Static tables and the tables of sinks are checked against their databases."""

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


def pipeline(
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


def problems_of(spec: PipelineSpec) -> list[str]:
    return [str(problem) for problem in validate(spec, databases=LiveDatabases())]


def test_columns_of_tables_are_looked_up(database: str) -> None:
    assert problems_of(pipeline(database)) == []
    misspelt = pipeline(database, "SELECT s.id, c.town AS city FROM s JOIN c ON s.id = c.id")
    assert problems_of(misspelt) == [
        "steps.joined.sql: c has no column town (there is: id, since, city) (column 16)"
    ]
    assert validate(misspelt) == []


def test_a_missing_static_table_is_a_problem(database: str) -> None:
    table = TableSpec(name="c", database=database, table="costumers")
    assert problems_of(pipeline(database, table=table)) == [
        "tables.c.database: there is no table costumers in this database: create it first"
    ]


def test_the_table_of_a_sink_needs_all_columns(database: str) -> None:
    sql = "SELECT s.id, c.city, c.since AS at FROM s JOIN c ON s.id = c.id"
    assert problems_of(pipeline(database, sql)) == [
        "sinks.out.table: the table results has no column at, which joined has (there is: id, city)"
    ]
    assert problems_of(pipeline(database, sql, target="new")) == []
    assert problems_of(pipeline(database, sql, target="new", create_table=False)) == [
        "sinks.out.table: there is no table new, and create_table is false: create it"
    ]


def test_columns_that_only_decide_need_not_be_in_the_table(database: str) -> None:
    sql = "SELECT s.id, c.city, c.since AS at, c.city AS op FROM s JOIN c ON s.id = c.id"
    spec = pipeline(database, sql)
    [sink] = spec.sinks
    assert isinstance(sink, DatabaseSinkSpec)
    upserts = replace(
        sink, mode="upsert", key=("id",), order_by=("at",), delete_when="OP = 'at city'"
    )
    assert problems_of(replace(spec, sinks=(upserts,))) == []
    assert len(problems_of(replace(spec, sinks=(replace(upserts, order_by=("id",)),)))) == 1


def test_an_unreachable_database_is_a_problem(tmp_path: Path) -> None:
    unreachable = "postgresql://u:secret@127.0.0.1:1/none"
    problems = problems_of(pipeline(unreachable))
    assert [problem.split(": ")[0] for problem in problems] == [
        "sinks.out.database",
        "tables.c.database",
    ]
    assert all("cannot be read" in p and "secret" not in p for p in problems)
    assert "there is no such kind of database" in problems_of(pipeline("nosuch://h/d"))[0]

    new_database = f"sqlite:///{tmp_path / 'new.sqlite'}"
    table = TableSpec(name="c", path="s3://b/c", schema="id bigint, city string")
    assert problems_of(pipeline(new_database, table=table)) == []
    assert not (tmp_path / "new.sqlite").exists()


def test_columns_of_files_are_read(database: str, tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text("id,city\n1,Ulm\n")
    table = TableSpec(name="c", path=str(tmp_path / "customers.csv"))
    assert problems_of(pipeline(database, table=table)) == []
    misspelt = pipeline(database, "SELECT s.id, c.town FROM s, c WHERE c.id = s.id", table=table)
    assert any("c has no column town" in problem for problem in problems_of(misspelt))
    missing = TableSpec(name="c", path=str(tmp_path / "nothing.csv"))
    assert "there is no file or directory" in problems_of(pipeline(database, table=missing))[0]
