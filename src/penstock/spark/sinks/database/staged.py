"""Staged writing: executors write to a staging table, the driver merges it into the result table.

Each attempt of a task writes its rows with a unique token and returns the token. In the transaction
that stores the offsets, the driver merges exactly the tokens that were returned. Rows of failed and
of speculative attempts remain in the staging table; the transaction of a later batch removes them.
It holds the lock of the query and checks the epoch, so no other owner's batch can be running.
"""

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import DBAPIError

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.engines import database_kind, open_engine
from penstock.spark.sinks.database.names import STAGING_PREFIX, DatabaseKind
from penstock.spark.sinks.database.result_table import PreparedTable
from penstock.spark.sinks.database.rows import (
    DELETE_COLUMN,
    check_keys,
    duplicate_key_error,
    to_simple_types,
)
from penstock.spark.sinks.database.statements import (
    Target,
    append_from,
    delete_from,
    execute,
    names,
    quote,
    upsert_from,
)
from penstock.spark.sinks.database.transactions import Transactions
from penstock.spark.sinks.database.writers import writer_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOKEN_COLUMN: Final = "__penstock_token"
_RESULT_SCHEMA: Final = pa.schema(
    [("token", pa.string()), ("rows", pa.int64()), ("error", pa.string())]
)


@dataclass(frozen=True)
class StagedRows:
    """Rows in the staging table that are to be merged."""

    tokens: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Stager:
    """Writes the rows of one task to the staging table; Spark calls it in the executors."""

    database: str
    query: str
    target: Target
    key: tuple[str, ...]
    lock_wait_seconds: float
    patience_seconds: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the tokens of committed rows.

        An error that another attempt would repeat is returned as text.
        """
        try:
            yield from self._stage(batches)
        except PipelineError as error:
            yield pa.record_batch([[""], [0], [str(error)]], schema=_RESULT_SCHEMA)

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine: Engine | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if engine is None:
                    engine = open_engine(self.database, self.lock_wait_seconds)
                token = self._add(Transactions(engine, self.query, self.patience_seconds), batch)
                yield pa.record_batch([[token], [batch.num_rows], [None]], schema=_RESULT_SCHEMA)
        finally:
            if engine is not None:
                engine.dispose()

    def _add(self, transactions: Transactions, batch: pa.RecordBatch) -> str:
        rows = to_simple_types(pa.Table.from_batches([batch]))
        check_keys(rows, self.key)
        writer = writer_for(self.target.kind)

        def write(connection: Connection) -> str:
            # A new token for each attempt: an earlier one may have committed without a response.
            token = uuid.uuid4().hex
            tokens = pa.array([token] * rows.num_rows, pa.string())
            renamed = rows.append_column(TOKEN_COLUMN, tokens)
            writer.append(connection, self.target, renamed.rename_columns(self.target.columns))
            return token

        return transactions.run("staging rows", self.target.name, write)


class StagingTable:
    """The staging table, used by the driver. `results` is the table that the rows are for."""

    def __init__(self, engine: Engine, key: str, results: PreparedTable) -> None:
        self._engine = engine
        self._kind = database_kind(engine)
        self._results = results
        self._deletes = DELETE_COLUMN in results.schema.names
        self.table = Target(
            self._kind,
            results.target.schema,
            _table_name(key, results),
            (*results.target.columns, *([DELETE_COLUMN] if self._deletes else []), TOKEN_COLUMN),
        )

    def create(self) -> None:
        """Creates the table with the column types of the result table, if it is missing."""
        if self._exists():
            return
        try:
            with self._engine.begin() as connection:
                for statement in self._ddl():
                    execute(connection, statement)
        except DBAPIError:
            # Either another driver has created it concurrently, or this one has no right to.
            if not self._exists():
                raise

    def _exists(self) -> bool:
        return inspect(self._engine).has_table(self.table.table, schema=self.table.schema)

    def _ddl(self) -> list[str]:
        kind = self._kind
        token = quote(kind, TOKEN_COLUMN)
        mysql = kind is DatabaseKind.MYSQL
        chosen = [names(kind, self._results.target.columns)]
        if self._deletes:
            flag = "CAST(0 AS SIGNED)" if mysql else "CAST(NULL AS boolean)"
            chosen.append(f"{flag} AS {quote(kind, DELETE_COLUMN)}")
        chosen.append(f"CAST('' AS {'CHAR' if mysql else 'varchar'}(32)) AS {token}")
        rows = f"SELECT {', '.join(chosen)} FROM {self._results.target.sql} WHERE 1 = 0"
        if mysql:
            return [f"CREATE TABLE {self.table.sql} (INDEX ({token})) ENGINE = InnoDB AS {rows}"]
        return [
            f"CREATE TABLE {self.table.sql} AS {rows}",
            f"CREATE INDEX ON {self.table.sql} ({token})",
        ]

    def stage(self, frame: "DataFrame", stager: Stager) -> StagedRows:
        """Runs the plan of the frame once, which writes its rows to the staging table."""
        results = frame.mapInArrow(stager, "token string, rows bigint, error string").collect()
        for row in results:
            if row["error"] is not None:
                raise PipelineError(row["error"])
        return StagedRows(
            tuple(row["token"] for row in results), sum(row["rows"] for row in results)
        )

    def merge(self, connection: Connection, staged: StagedRows) -> None:
        """Merges these rows, and removes all others. The caller holds the lock of the query."""
        target = self._results.target
        condition = self._where(staged.tokens)
        if staged.tokens:
            self._check_count(connection, condition, staged.rows)
            if target.key:
                self._check_keys(connection, condition)
            puts = condition
            if self._deletes:
                flag = quote(self._kind, DELETE_COLUMN)
                execute(connection, delete_from(target, self.table.sql, f"{condition} AND {flag}"))
                puts = f"{condition} AND NOT {flag}"
            move = upsert_from if target.key else append_from
            execute(connection, move(target, self.table.sql, puts))
        self.sweep(connection)

    def sweep(self, connection: Connection) -> None:
        """Removes all rows. The caller holds the lock of the query."""
        if self._kind is not DatabaseKind.MYSQL:
            execute(connection, f"DELETE FROM {self.table.sql}")
            return
        # Without a condition MySQL would wait for tasks that still write.
        token = quote(self._kind, TOKEN_COLUMN)
        query = f"SELECT DISTINCT {token} FROM {self.table.sql}"
        tokens = [str(row[0]) for row in execute(connection, query)]
        for start in range(0, len(tokens), 100):
            condition = self._where(tokens[start : start + 100])
            execute(connection, f"DELETE FROM {self.table.sql}{condition}")

    def _where(self, tokens: Sequence[str]) -> str:
        token_list = ", ".join(f"'{token}'" for token in tokens)
        return f" WHERE {quote(self._kind, TOKEN_COLUMN)} IN ({token_list})"

    def _check_count(self, connection: Connection, condition: str, rows: int) -> None:
        count = execute(connection, f"SELECT count(*) FROM {self.table.sql}{condition}").scalar()
        if count != rows:
            raise PipelineError(
                f"the tasks have written {rows} rows to the staging table {self.table.name}, and "
                f"{count} exist: somebody has changed it. Nothing of the batch was stored",
                remedy="start the pipeline again",
            )

    def _check_keys(self, connection: Connection, condition: str) -> None:
        key = names(self._kind, self._results.target.key)
        duplicate = execute(
            connection,
            f"SELECT {key} FROM {self.table.sql}{condition} GROUP BY {key} "
            "HAVING count(*) > 1 LIMIT 1",
        ).first()
        if duplicate is not None:
            pairs = zip(self._results.target.key, duplicate, strict=True)
            raise duplicate_key_error(", ".join(f"{name} = {value!r}" for name, value in pairs))


def _table_name(key: str, results: PreparedTable) -> str:
    """Returns a name that depends on the columns: tasks of an earlier driver may still write."""
    shape = [(name, repr(results.types[name])) for name in results.columns]
    text = repr((key, results.target.name, shape, DELETE_COLUMN in results.schema.names))
    return f"{STAGING_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}"
