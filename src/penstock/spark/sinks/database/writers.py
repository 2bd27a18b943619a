"""Writers of rows, one for each dialect, with the fastest method of the database."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from sqlalchemy import Connection

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.mysql_literals import SqlRows, literals
from penstock.spark.sinks.database.names import TEMPORARY_TABLE, DatabaseKind
from penstock.spark.sinks.database.rows import is_bytes, is_text
from penstock.spark.sinks.database.statements import (
    DriverCursor,
    Target,
    conflict_clause,
    delete_from,
    execute,
    names,
    quote,
    upsert_from,
)

ROWS_AT_A_TIME: Final = 20_000
_MYSQL_STATEMENT_BYTES: Final = 1 << 20


class RowWriter(ABC):
    """Writes rows of simple types with the target's columns, in the caller's transaction."""

    @abstractmethod
    def append(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        """Inserts rows."""

    @abstractmethod
    def upsert(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        """Inserts rows, or replaces those with the same key. Each key occurs once."""

    @abstractmethod
    def delete(self, connection: Connection, target: Target, keys: pa.Table) -> None:
        """Deletes the rows with these keys, if they exist."""


def writer_for(kind: DatabaseKind) -> RowWriter:
    if kind is DatabaseKind.SQLITE:
        return SqliteWriter()
    return MysqlWriter() if kind is DatabaseKind.MYSQL else PostgresqlWriter()


class SqliteWriter(RowWriter):
    """Writes with `executemany`."""

    def append(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        self._insert(connection, target, rows, "")

    def upsert(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        self._insert(connection, target, rows, " " + conflict_clause(target))

    def delete(self, connection: Connection, target: Target, keys: pa.Table) -> None:
        same = " AND ".join(f"{quote(target.kind, name)} = ?" for name in keys.column_names)
        self._many(connection, f"DELETE FROM {target.sql} WHERE {same}", keys)

    def _insert(self, connection: Connection, target: Target, rows: pa.Table, end: str) -> None:
        places = ", ".join("?" * rows.num_columns)
        columns = names(target.kind, rows.column_names)
        statement = f"INSERT INTO {target.sql} ({columns}) VALUES ({places}){end}"
        self._many(connection, statement, rows)

    @staticmethod
    def _many(connection: Connection, statement: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        _check_finite(rows, "SQLite would keep it as NULL")
        _check_years(rows, 9999)
        with DriverCursor(connection) as cursor:
            for batch in rows.to_batches(max_chunksize=ROWS_AT_A_TIME):
                columns = [_sqlite_values(column) for column in batch.columns]
                cursor.executemany(statement, list(zip(*columns, strict=True)))


def _sqlite_values(column: pa.Array) -> list[object]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    return cast("list[object]", column.to_pylist())


class _Copy(Protocol):
    def __enter__(self) -> "_Copy": ...
    def __exit__(self, *error: object) -> object: ...
    def write(self, buffer: bytes) -> None: ...


class _CopyCursor(Protocol):
    def copy(self, statement: str) -> _Copy: ...


class PostgresqlWriter(RowWriter):
    """Writes with COPY from CSV, which Arrow creates without a Python object per value."""

    def append(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        self._copy(connection, target.sql, rows)

    def upsert(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        if rows.num_rows:
            source = self._into_temporary(connection, target, rows)
            execute(connection, upsert_from(target, source))
            execute(connection, f"DROP TABLE {source}")

    def delete(self, connection: Connection, target: Target, keys: pa.Table) -> None:
        if keys.num_rows:
            source = self._into_temporary(connection, target, keys)
            execute(connection, delete_from(target, source))
            execute(connection, f"DROP TABLE {source}")

    def _into_temporary(self, connection: Connection, target: Target, rows: pa.Table) -> str:
        columns = names(target.kind, rows.column_names)
        execute(
            connection,
            f"CREATE TEMPORARY TABLE {TEMPORARY_TABLE} ON COMMIT DROP AS "
            f"SELECT {columns} FROM {target.sql} WITH NO DATA",
        )
        self._copy(connection, TEMPORARY_TABLE, rows)
        return TEMPORARY_TABLE

    @staticmethod
    def _copy(connection: Connection, table: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        _check_no_nul(rows)
        # PostgreSQL supports later years, but Arrow writes them wrongly.
        _check_years(rows, 32767)
        columns = names(DatabaseKind.POSTGRESQL, rows.column_names)
        statement = f"COPY {table} ({columns}) FROM STDIN (FORMAT csv)"
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
        with (
            DriverCursor(connection) as cursor,
            cast(_CopyCursor, cursor).copy(statement) as copy,
        ):
            for batch in rows.to_batches(max_chunksize=ROWS_AT_A_TIME):
                out = pa.BufferOutputStream()
                pyarrow.csv.write_csv(_bytes_as_text(batch), out, options)
                copy.write(out.getvalue().to_pybytes())


def _bytes_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with binary columns in PostgreSQL's hex format."""
    for number, field in enumerate(batch.schema):
        if is_bytes(field.type):
            values = batch.column(number).to_pylist()
            texts = [None if value is None else "\\x" + value.hex() for value in values]
            batch = batch.set_column(number, field.name, pa.array(texts, pa.large_string()))
    return batch


class MysqlWriter(RowWriter):
    """Writes with INSERTs of many rows, as text from Arrow. Many servers disable LOAD DATA."""

    def append(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        self._insert(connection, target, rows, "")

    def upsert(self, connection: Connection, target: Target, rows: pa.Table) -> None:
        self._insert(connection, target, rows, " " + conflict_clause(target))

    def delete(self, connection: Connection, target: Target, keys: pa.Table) -> None:
        columns = [quote(target.kind, name) for name in keys.column_names]
        start, end = f"DELETE FROM {target.sql} WHERE ", ""
        if len(columns) == 1:
            start, between, end = f"{start}{columns[0]} IN (", ", ", ")"
        else:
            # Unlike a list of tuples, this uses the index in every version.
            between = " OR "
        with DriverCursor(connection) as cursor:
            for batch in keys.to_batches(max_chunksize=1000):
                values = [literals(column).to_pylist() for column in batch.columns]
                conditions = [
                    " AND ".join(
                        f"{name} = {literal}" for name, literal in zip(columns, row, strict=True)
                    )
                    if len(columns) > 1
                    else row[0]
                    for row in zip(*values, strict=True)
                ]
                cursor.execute(start + between.join(conditions) + end)

    def _insert(self, connection: Connection, target: Target, rows: pa.Table, end: str) -> None:
        if not rows.num_rows:
            return
        _check_finite(rows, "MySQL cannot keep it")
        start = f"INSERT INTO {target.sql} ({names(target.kind, rows.column_names)}) VALUES "
        limit = int(str(execute(connection, "SELECT @@max_allowed_packet").scalar()))
        fixed = len(start.encode()) + len(end.encode()) + 100
        longest = min(_MYSQL_STATEMENT_BYTES, limit - fixed)
        with DriverCursor(connection) as cursor:
            for values in self._values(rows, target, longest, limit - fixed):
                cursor.execute(f"{start}{values}{end}")

    @staticmethod
    def _values(rows: pa.Table, target: Target, size: int, limit: int) -> Iterator[str]:
        for batch in rows.to_batches(max_chunksize=ROWS_AT_A_TIME):
            texts = SqlRows(batch)
            if texts.longest > limit:
                raise PipelineError(
                    f"a row for {target.name} has {texts.longest} bytes, and the server takes "
                    f"{limit}",
                    remedy="raise its max_allowed_packet, or leave such rows out in the query",
                )
            yield from texts.chunks(size)


def _check_finite(rows: pa.Table, reason: str) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_floating(field.type) and pc.all(pc.is_finite(column)).as_py() is False:
            raise PipelineError(
                f"column {field.name}: NaN or infinity is among the values, and {reason}. Nothing "
                "of the batch was stored",
                remedy=f"make it NULL in the query: nanvl({field.name}, NULL)",
            )


def _check_years(rows: pa.Table, last: int) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_date(field.type):
            units_per_day, integer = 1, pa.int32()
        elif pa.types.is_timestamp(field.type):
            units_per_day, integer = 86_400_000_000, pa.int64()
        else:
            continue
        first, end = (_days_before(year) * units_per_day for year in (1, last + 1))
        extremes = pc.min_max(column.cast(integer)).as_py()
        if extremes["min"] is not None and not (first <= extremes["min"] <= extremes["max"] < end):
            raise PipelineError(
                f"column {field.name}: a value is not in the years 1 to {last}, and others cannot "
                "be stored here. Nothing of the batch was stored",
                remedy="change or leave out such values in the query",
            )


def _days_before(year: int) -> int:
    """Returns the days from 1970 to the start of a year."""
    return int(np.datetime64(f"{year:04}-01-01", "D").astype(int))


def _check_no_nul(rows: pa.Table) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if is_text(field.type) and pc.any(pc.match_substring(column, "\0")).as_py():
            raise PipelineError(
                f"column {field.name}: a text has a character NUL in it, which PostgreSQL cannot "
                "keep. Nothing of the batch was stored",
                remedy=f"replace it in the query: replace({field.name}, char(0), '')",
            )
