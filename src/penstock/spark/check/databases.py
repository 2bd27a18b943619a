"""Checks of a pipeline's tables against their databases: static tables, and those of sinks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.spark.check.relations import TIMESTAMP, Column
from penstock.spark.check.views import Analysis
from penstock.spark.decode.datatypes import DataType, Decimal, Scalar
from penstock.spark.errors import PipelineError, SparkPartError
from penstock.spark.pipeline.model import PipelineSpec, Problem, TableSpec
from penstock.spark.sinks.registry import kind_of

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

_LOCK_WAIT_S = 5.0


class Databases(Protocol):
    """The tables of databases, by SQLAlchemy's address."""

    def columns(self, address: str, table: str) -> Sequence[Column] | None:
        """Returns the columns of a table, or None if it does not exist.

        Raises `PipelineError` if the database does not respond.
        """


class LiveDatabases:
    """The tables of real databases, read through SQLAlchemy."""

    def columns(self, address: str, table: str) -> Sequence[Column] | None:
        from sqlalchemy import inspect
        from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError

        from penstock.spark.sinks.database.engines import open_engine, shown_url
        from penstock.spark.sinks.database.failures import reason_of

        schema, _, name = table.rpartition(".")
        engine = open_engine(address, _LOCK_WAIT_S)
        try:
            if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists():
                # Connecting would create the file.
                return None
            columns = inspect(engine).get_columns(name, schema or None)
        except NoSuchTableError:
            return None
        except (SQLAlchemyError, OSError) as error:
            shown = shown_url(engine.url)
            reason = reason_of(error)
            raise PipelineError(f"the database {shown} cannot be read: {reason}") from error
        finally:
            engine.dispose()
        return [Column(column["name"], _type(column["type"])) for column in columns]


def table_columns(
    spec: PipelineSpec, databases: Databases | None
) -> tuple[Mapping[str, Sequence[Column]], list[Problem]]:
    """Returns the columns of static tables without a schema, by view, and problems with them."""
    columns_by_view: dict[str, Sequence[Column]] = {}
    problems: list[Problem] = []
    for table in spec.tables:
        try:
            columns = _columns(table, databases)
        except (SparkPartError, ImportError) as error:
            key = "database" if table.path is None else "path"
            problems.append(table.problem(key, str(error)))
            continue
        if columns is not None:
            columns_by_view[table.name] = columns
    return columns_by_view, problems


def check_tables(spec: PipelineSpec, analysis: Analysis, databases: Databases) -> list[Problem]:
    """Returns a problem for each sink whose table cannot hold the rows."""
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
            raise PipelineError(f"there is no file or directory {table.path}")
        return None if table.schema is not None else _file_columns(table.path)
    if databases is None or not table.database or not table.table:
        return None
    columns = databases.columns(table.database, table.table)
    if columns is None:
        raise PipelineError(
            f"there is no table {table.table} in this database", remedy="create it first"
        )
    return None if table.schema is not None else columns


def _file_columns(path: str) -> Sequence[Column]:
    from penstock.spark.run.static_tables import StaticTable

    return [Column(name) for name in StaticTable({"path": path}).schema().names]


def _type(sql_type: "TypeEngine[Any]") -> DataType | None:
    """Returns the type if it is certain; the reader of static tables knows more of types."""
    from sqlalchemy import types as sql

    if isinstance(sql_type, sql.DateTime):
        return TIMESTAMP
    if isinstance(sql_type, sql.Integer):
        return Scalar("bigint")
    if isinstance(sql_type, sql.Numeric) and not isinstance(sql_type, sql.Float):
        return Decimal(sql_type.precision or 38, sql_type.scale or 0)
    return Scalar("string") if isinstance(sql_type, sql.String) else None
