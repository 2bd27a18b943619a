"""SQL that is written as text: names in quotes, and statements that take rows from a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, CursorResult
from sqlalchemy.engine.interfaces import DBAPICursor

from penstock.spark.sinks.database.engines import DatabaseKind
from penstock.spark.sinks.database.failures import is_disconnect


@dataclass(frozen=True)
class Target:
    """A table that rows go to. All names are the database's own."""

    kind: DatabaseKind
    schema: str | None
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    merge: bool = False
    """Upserts with MERGE: GaussDB has no ON CONFLICT."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def sql(self) -> str:
        """For statements."""
        return full_name(self.kind, self.schema, self.table)

    @property
    def others(self) -> tuple[str, ...]:
        """Columns that are not of the key."""
        return tuple(column for column in self.columns if column not in self.key)


def quote(kind: DatabaseKind, name: str) -> str:
    mark = "`" if kind is DatabaseKind.MYSQL else '"'
    return mark + name.replace(mark, 2 * mark) + mark


def full_name(kind: DatabaseKind, schema: str | None, table: str) -> str:
    name = quote(kind, table)
    return f"{quote(kind, schema)}.{name}" if schema else name


def names(kind: DatabaseKind, columns: Sequence[str], prefix: str = "") -> str:
    return ", ".join(prefix + quote(kind, column) for column in columns)


def on_key(target: Target, left: str, right: str) -> str:
    kind = target.kind
    return " AND ".join(f"{left}.{quote(kind, k)} = {right}.{quote(kind, k)}" for k in target.key)


def conflict_clause(target: Target) -> str:
    """What an INSERT does with rows whose key is there."""
    kind = target.kind
    if kind is DatabaseKind.MYSQL:
        # VALUES() is what MySQL and MariaDB both know.
        change = [f"{quote(kind, c)} = VALUES({quote(kind, c)})" for c in target.others]
        first = f"{target.sql}.{quote(kind, target.key[0])}"
        return "ON DUPLICATE KEY UPDATE " + (", ".join(change) or f"{first} = {first}")
    key = names(kind, target.key)
    change = [f"{quote(kind, c)} = excluded.{quote(kind, c)}" for c in target.others]
    return f"ON CONFLICT ({key}) DO " + (f"UPDATE SET {', '.join(change)}" if change else "NOTHING")


def append_from(target: Target, source: str, where: str = "") -> str:
    columns = names(target.kind, target.columns)
    return f"INSERT INTO {target.sql} ({columns}) SELECT {columns} FROM {source}{where}"


def upsert_from(target: Target, source: str, where: str = "") -> str:
    """Rows of another table, each key once in it."""
    if not target.merge:
        return f"{append_from(target, source, where)} {conflict_clause(target)}"
    kind = target.kind
    columns = names(kind, target.columns)
    change = ", ".join(f"{quote(kind, c)} = n.{quote(kind, c)}" for c in target.others)
    matched = f"WHEN MATCHED THEN UPDATE SET {change} " if change else ""
    return (
        f"MERGE INTO {target.sql} AS o USING (SELECT {columns} FROM {source}{where}) AS n "
        f"ON ({on_key(target, 'o', 'n')}) {matched}"
        f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({names(kind, target.columns, 'n.')})"
    )


def delete_from(target: Target, source: str, where: str = "") -> str:
    """Rows whose key is in another table."""
    keys = f"(SELECT {names(target.kind, target.key)} FROM {source}{where}) AS n"
    if target.kind is DatabaseKind.MYSQL:
        return f"DELETE o FROM {target.sql} AS o JOIN {keys} ON {on_key(target, 'o', 'n')}"
    return f"DELETE FROM {target.sql} AS o USING {keys} WHERE {on_key(target, 'o', 'n')}"


def execute(connection: Connection, statement: str) -> CursorResult[Any]:
    """A statement without parameters, in which % is a character like any other."""
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


class DriverCursor:
    """A cursor of the driver, for what would go through SQLAlchemy slowly.

    Errors are the driver's own: SQLAlchemy's show the statement, which can be megabytes.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor: DBAPICursor | None = None

    def __enter__(self) -> DBAPICursor:
        self._cursor = self._connection.connection.cursor()
        return self._cursor

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._cursor is not None
        if error is not None and is_disconnect(error, self._connection.engine):
            self._connection.invalidate(error)
        else:
            self._cursor.close()
