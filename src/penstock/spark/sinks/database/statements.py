"""SQL as text: quoted names, and statements that copy or delete rows by another table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, CursorResult
from sqlalchemy.engine.interfaces import DBAPICursor

from penstock.spark.sinks.database.failures import is_disconnect
from penstock.spark.sinks.database.names import DatabaseKind


@dataclass(frozen=True)
class Target:
    """A table to which rows are written. All names are the database's own."""

    kind: DatabaseKind
    schema: str | None
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    merge: bool = False
    """Upserts with MERGE: GaussDB has no ON CONFLICT."""

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def sql(self) -> str:
        """The quoted name for statements."""
        return full_name(self.kind, self.schema, self.table)

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are not in the key."""
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
    """Returns the clause of INSERT that replaces rows with the same key."""
    kind = target.kind
    if kind is DatabaseKind.MYSQL:
        # MySQL and MariaDB both support VALUES().
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
    """Returns an upsert of the rows of another table, in which each key occurs once."""
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
    """Returns a DELETE of the rows whose key is in another table."""
    keys = f"(SELECT {names(target.kind, target.key)} FROM {source}{where}) AS n"
    if target.kind is DatabaseKind.MYSQL:
        return f"DELETE o FROM {target.sql} AS o JOIN {keys} ON {on_key(target, 'o', 'n')}"
    return f"DELETE FROM {target.sql} AS o USING {keys} WHERE {on_key(target, 'o', 'n')}"


def execute(connection: Connection, statement: str) -> CursorResult[Any]:
    """Executes a statement without parameters, in which % has no special meaning."""
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


class DriverCursor:
    """A cursor of the driver, for bulk writes that SQLAlchemy would slow down.

    It raises the driver's own errors: SQLAlchemy's contain the statement, which can be megabytes.
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
