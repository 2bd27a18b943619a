"""The databases of a pipeline, as they are: tables that are joined with, and those of sinks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.spark.check.relations import Column
from penstock.spark.check.types import TIMESTAMP
from penstock.spark.check.views import Analysis
from penstock.spark.decode.datatypes import DataType, Decimal, Scalar
from penstock.spark.errors import PipelineError, SparkPartError
from penstock.spark.pipeline.model import PipelineSpec, Problem, TableSpec
from penstock.spark.sinks.registry import kind_of

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.types import TypeEngine


class Databases(Protocol):
    """What checks ask of databases."""

    def columns(self, address: str, table: str) -> Sequence[Column] | None:
        """Of a table; None if there is none. `PipelineError` if the database cannot be asked."""


class LiveDatabases:
    """Real ones, through SQLAlchemy."""

    def columns(self, address: str, table: str) -> Sequence[Column] | None:
        from sqlalchemy import inspect
        from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError

        schema, _, name = table.rpartition(".")
        with _engine(address) as engine:
            shown = engine.url.render_as_string(hide_password=True)
            if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists():
                # To ask would make the file.
                return None
            try:
                found = inspect(engine).get_columns(name, schema or None)
            except NoSuchTableError:
                return None
            except (SQLAlchemyError, OSError) as error:
                said = str(error).splitlines()[0]
                raise PipelineError(f"the database {shown} cannot be asked: {said}") from error
        return [Column(each["name"], _type(each["type"])) for each in found]


@contextmanager
def _engine(address: str) -> "Iterator[Engine]":
    from penstock.spark.sinks.database.engines import open_engine

    engine = open_engine(address, 5.0)
    try:
        yield engine
    finally:
        engine.dispose()


def table_columns(
    spec: PipelineSpec, databases: Databases | None
) -> tuple[Mapping[str, Sequence[Column]], list[Problem]]:
    """Columns of static tables without a schema, by name of the view."""
    found: dict[str, Sequence[Column]] = {}
    problems: list[Problem] = []
    for table in spec.tables:
        try:
            columns = _columns(table, databases)
        except (SparkPartError, ImportError) as error:
            key = "database" if table.path is None else "path"
            line = table.line_of(key)
            problems.append(Problem(line, f"tables.{table.name}.{key}", str(error)))
            continue
        if columns is not None:
            found[table.name] = columns
    return found, problems


def check_tables(spec: PipelineSpec, analysis: Analysis, databases: Databases) -> list[Problem]:
    """Whether the tables of sinks can take the rows."""
    return [
        problem
        for sink in spec.sinks
        for problem in kind_of(sink).check_tables(sink, analysis.view(sink.view), databases)
    ]


def _columns(table: TableSpec, databases: Databases | None) -> Sequence[Column] | None:
    if table.path is not None:
        if "://" in table.path:
            return None
        if not Path(table.path).exists():
            raise PipelineError(f"there is no file or folder {table.path}")
        return None if table.schema is not None else _of_files(table.path)
    if databases is None or not table.database or not table.table:
        return None
    columns = databases.columns(table.database, table.table)
    if columns is None:
        raise PipelineError(f"there is no table {table.table} in this database: create it first")
    return None if table.schema is not None else columns


def _of_files(path: str) -> Sequence[Column]:
    from penstock.spark.run.static_tables import StaticTable

    return [Column(name) for name in StaticTable({"path": path}).schema().names]


def _type(kind: "TypeEngine[Any]") -> DataType | None:
    """Only what is sure: the sink and the reader of static tables know more of types."""
    from sqlalchemy import types as sql

    if isinstance(kind, sql.DateTime):
        return TIMESTAMP
    if isinstance(kind, sql.Integer):
        return Scalar("bigint")
    if isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float):
        return Decimal(kind.precision or 38, kind.scale or 0)
    return Scalar("string") if isinstance(kind, sql.String) else None
