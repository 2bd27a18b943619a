"""The database sink: stores results, dead letters and offsets in one transaction."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from penstock.spark.decode.datatypes import quote_name
from penstock.spark.errors import PipelineError, ProgressError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import Batch, Progress, StoredProgress
from penstock.spark.sinks.database.bookkeeping import Bookkeeping
from penstock.spark.sinks.database.dead_letters import DeadLetterTable
from penstock.spark.sinks.database.engines import database_kind, open_engine
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.database.names import DatabaseKind, check_column_name
from penstock.spark.sinks.database.result_table import (
    PreparedTable,
    ResultTable,
    check_transactional,
)
from penstock.spark.sinks.database.rows import (
    DELETE_COLUMN,
    TableChanges,
    resolve_changes,
    to_simple_types,
)
from penstock.spark.sinks.database.staged import StagedRows, Stager, StagingTable
from penstock.spark.sinks.database.statements import execute
from penstock.spark.sinks.database.tables import OWN_TABLES, create_missing
from penstock.spark.sinks.database.transactions import LockTimeoutError, Transactions
from penstock.spark.sinks.database.writers import writer_for
from penstock.spark.sinks.port import DeadLetters, Sink, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

LOCK_WAIT_SECONDS: Final = 60.0
OUTAGE_WAIT_SECONDS: Final = 60.0


class DatabaseSink(Sink):
    """A table of SQLite, PostgreSQL, MySQL, MariaDB or GaussDB as the sink of a query.

    Waits up to `patience_seconds` for a database that is unavailable, and `lock_wait_seconds` for a
    lock. With a `dead_letter_table` the sink stores dead letters, too.
    """

    def __init__(
        self,
        spec: DatabaseSinkSpec,
        key: str,
        *,
        dead_letter_table: str | None = None,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
        patience_seconds: float = OUTAGE_WAIT_SECONDS,
    ) -> None:
        _check_spec(spec)
        self._spec = spec
        self._key = key
        self._lock_wait = lock_wait_seconds
        self._patience = patience_seconds
        self._bookkeeping = Bookkeeping(key)
        self._engine: Engine = open_engine(spec.database, lock_wait_seconds)
        self._kind = database_kind(self._engine)
        if spec.writing == "staged" and self._kind is DatabaseKind.SQLITE:
            raise PipelineError(
                f"{key}: `writing: staged` needs a database that several machines can write to at "
                "once, which SQLite is not",
                remedy="leave it at `driver`",
            )
        self._transactions = Transactions(self._engine, key, patience_seconds)
        self._table = ResultTable(self._engine, spec)
        self._writer = writer_for(self._kind)
        self._letters = (
            DeadLetterTable(self._engine, dead_letter_table, key) if dead_letter_table else None
        )
        self.takes_dead_letters = self._letters is not None
        self._results: PreparedTable | None = None
        self._staging: StagingTable | None = None
        self._epoch: int | None = None

    def open(self, owner: str) -> StoredProgress | None:
        self._attempt("creating Penstock's tables", self._create_tables)

        def take_over(connection: Connection) -> tuple[int, StoredProgress | None]:
            epoch = self._bookkeeping.take_over(connection, owner)
            return epoch, self._bookkeeping.read(connection)

        try:
            self._epoch, stored = self._run("taking over", take_over)
        except LockTimeoutError as error:
            raise PipelineError(f"{error}{self._describe_owner()}") from error.__cause__
        return stored

    def begin_at(self, start: Progress) -> None:
        epoch = self._require_epoch()

        def begin(connection: Connection) -> None:
            self._bookkeeping.lock(connection, epoch)
            stored = self._bookkeeping.read(connection)
            if stored is None:
                self._bookkeeping.begin_at(connection, start, epoch)
            elif stored.query_id or decide(stored, _empty_batch(start)) is not Decision.APPLY:
                raise ProgressError(f"{self._key}: the query has begun already")

        self._run("storing where to begin", begin)

    def write(
        self, rows: "DataFrame", batch: Batch, dead_letters: "DeadLetters | None" = None
    ) -> WriteResult:
        self._require_epoch()
        for name in rows.columns:
            check_column_name(self._kind, name)
        frame = self._with_deletes(rows)
        if self._spec.writing == "staged":
            return self._write_staged(frame, batch, dead_letters)
        table = frame.toArrow()
        return self.write_table(table, batch, dead_letters() if dead_letters else None)

    def write_table(
        self, rows: pa.Table, batch: Batch, dead_letters: pa.Table | None = None
    ) -> WriteResult:
        """Like `write`, for rows in the driver's memory.

        With `delete_when` they have the boolean column `rows.DELETE_COLUMN`.
        """
        self._require_epoch()
        results = self._prepare(rows.schema)
        append = self._spec.mode == "append"
        changes = resolve_changes(
            to_simple_types(rows), self._spec.key, self._spec.order_by, append=append
        )
        puts = changes.puts.select(list(results.columns)).rename_columns(results.target.columns)
        deletes = changes.deletes
        if deletes is not None:
            deletes = deletes.rename_columns(results.target.key)
        changes = TableChanges(puts, deletes)

        def put(connection: Connection) -> int:
            if changes.deletes is not None:
                self._writer.delete(connection, results.target, changes.deletes)
            write = self._writer.append if append else self._writer.upsert
            write(connection, results.target, changes.puts)
            return changes.rows

        return self._apply(batch, put, dead_letters)

    def clear(self) -> None:
        epoch = self._require_epoch()
        table_exists = self._attempt("looking for the result table", self._table.exists)

        def clear(connection: Connection) -> None:
            self._bookkeeping.lock(connection, epoch)
            if table_exists:
                execute(connection, f"DELETE FROM {self._table.sql}")
            if self._letters is not None:
                self._letters.clear(connection)
            self._bookkeeping.clear(connection)

        self._run("clearing results and offsets", clear)

    def close(self) -> None:
        self._engine.dispose()

    def _create_tables(self) -> None:
        create_missing(self._engine, OWN_TABLES)
        if self._letters is not None:
            self._letters.create()
        if self._kind is DatabaseKind.MYSQL:
            with self._engine.connect() as connection:
                for table in OWN_TABLES:
                    check_transactional(connection, None, table.name)
        if self._table.exists():
            self._table.check()
        # In a transaction of its own: a deadlock here must not abort the one that takes over.
        with suppress(IntegrityError), self._engine.begin() as connection:
            self._bookkeeping.add(connection)

    def _prepare(self, schema: pa.Schema) -> PreparedTable:
        if self._results is None or not self._results.schema.equals(schema):
            self._results = self._attempt(
                "preparing the result table", lambda: self._table.prepare(schema)
            )
        return self._results

    def _apply(
        self, batch: Batch, put: Callable[[Connection], int], dead_letters: pa.Table | None
    ) -> WriteResult:
        epoch = self._require_epoch()
        letters = dead_letters.num_rows if dead_letters is not None else 0
        if letters and self._letters is None:
            raise PipelineError(f"{self._key}: there is no table for dead letters")

        def apply(connection: Connection) -> WriteResult:
            self._bookkeeping.lock(connection, epoch)
            stored = self._bookkeeping.read(connection) or StoredProgress({})
            # An earlier attempt may have committed without a response.
            if decide(stored, batch) is Decision.SKIP:
                return self._bookkeeping.result_of(connection, batch)
            result = WriteResult(put(connection), letters)
            if self._letters is not None and letters:
                self._letters.write(connection, dead_letters)
            self._bookkeeping.advance(connection, batch, result, epoch, stored)
            return result

        return self._run(f"writing batch {batch.batch_id} into {self._spec.table}", apply)

    def _write_staged(
        self, frame: "DataFrame", batch: Batch, dead_letters: "DeadLetters | None"
    ) -> WriteResult:
        from pyspark.sql.pandas.types import to_arrow_schema

        results = self._prepare(to_arrow_schema(frame.schema, timezone="UTC"))
        if self._staging is None:
            self._staging = StagingTable(self._engine, self._key, results)
            self._attempt("creating the staging table", self._staging.create)
        staging = self._staging
        stager = Stager(
            self._spec.database,
            self._key,
            staging.table,
            self._spec.key if self._spec.mode == "upsert" else (),
            self._lock_wait,
            self._patience,
        )
        column_names = [*results.columns, *([DELETE_COLUMN] if self._spec.delete_when else [])]
        frame = self._last_of_each_key(frame).select(*map(quote_name, column_names))
        staged: StagedRows = staging.stage(frame, stager)

        def put(connection: Connection) -> int:
            staging.merge(connection, staged)
            return staged.rows

        return self._apply(batch, put, dead_letters() if dead_letters else None)

    def _with_deletes(self, frame: "DataFrame") -> "DataFrame":
        if self._spec.delete_when is None:
            return frame
        from pyspark.sql import functions

        # On a line of its own: it may end with a comment.
        condition = functions.expr(f"coalesce((\n{self._spec.delete_when}\n), false)")
        return frame.withColumn(DELETE_COLUMN, condition)

    def _last_of_each_key(self, frame: "DataFrame") -> "DataFrame":
        """Does in the executors what `resolve_changes` does in the driver."""
        if self._spec.mode != "upsert" or not self._spec.order_by:
            return frame
        from pyspark.sql import Window, functions

        newest = Window.partitionBy(*map(quote_name, self._spec.key)).orderBy(
            *(functions.desc_nulls_last(quote_name(name)) for name in self._spec.order_by)
        )
        rank = "__penstock_rank"
        return frame.withColumn(rank, functions.row_number().over(newest)).where(f"{rank} = 1")

    def _require_epoch(self) -> int:
        if self._epoch is None:
            raise PipelineError(f"{self._key}: `open` the sink first")
        return self._epoch

    def _describe_owner(self) -> str:
        if self._kind is DatabaseKind.SQLITE:
            # While SQLite is locked, it cannot be read either.
            return ""
        owner = self._run("reading the owner", self._bookkeeping.peek)
        return f". The owner is {owner.name!r} since {owner.since}" if owner else ""

    def _run(self, doing: str, action: Callable[[Connection], T]) -> T:
        return self._transactions.run(doing, self._spec.table, action)

    def _attempt(self, doing: str, action: Callable[[], T]) -> T:
        return self._transactions.attempt(doing, self._spec.table, action)


def _check_spec(spec: DatabaseSinkSpec) -> None:
    if spec.mode == "upsert" and not spec.key:
        raise PipelineError(
            f"the sink {spec.name} has `mode: upsert` and no `key`",
            remedy="name the columns that identify a row",
        )
    if spec.mode == "append" and spec.delete_when:
        raise PipelineError(
            f"the sink {spec.name} has `delete_when`, which needs `mode: upsert` and `key`: "
            "otherwise it is unknown what to delete"
        )


def _empty_batch(start: Progress) -> Batch:
    return Batch("", 0, start, start)
