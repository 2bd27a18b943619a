"""Staged mode: executors write to a table of their own, the driver moves the rows over.

Each attempt of a task writes its rows under a token that nobody else has, and hands the token back.
The driver moves exactly the tokens that it was handed, in the transaction that stores the offsets.
What attempts that failed, or that were doubled, have left behind is of no use to anybody. It goes
in the transaction of a later batch, which holds the lock of the query and has its epoch: no other
owner is there then whose batch could be running.
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
from penstock.spark.sinks.database.engines import DatabaseKind, database_kind, open_engine
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
from penstock.spark.sinks.database.tables import STAGING_PREFIX
from penstock.spark.sinks.database.transactions import Transactions
from penstock.spark.sinks.database.writers import writer_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOKEN_COLUMN: Final = "__penstock_token"
_HANDED_BACK: Final = pa.schema(
    [("token", pa.string()), ("rows", pa.int64()), ("error", pa.string())]
)


@dataclass(frozen=True)
class StagedRows:
    """Rows that wait in the staging table."""

    tokens: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Stager:
    """What an executor does with its part of the rows."""

    address: str
    query: str
    target: Target
    key: tuple[str, ...]
    lock_wait_seconds: float
    patience_seconds: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The tokens under which the rows are, once they are committed.

        An error that another attempt would meet again comes back as text.
        """
        try:
            yield from self._stage(batches)
        except PipelineError as error:
            yield pa.record_batch([[""], [0], [str(error)]], schema=_HANDED_BACK)

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engine: Engine | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if engine is None:
                    engine = open_engine(self.address, self.lock_wait_seconds)
                token = self._add(Transactions(engine, self.query, self.patience_seconds), batch)
                yield pa.record_batch([[token], [batch.num_rows], [None]], schema=_HANDED_BACK)
        finally:
            if engine is not None:
                engine.dispose()

    def _add(self, transactions: Transactions, batch: pa.RecordBatch) -> str:
        rows = to_simple_types(pa.Table.from_batches([batch]))
        check_keys(rows, self.key)
        writer = writer_for(self.target.kind)

        def write(connection: Connection) -> str:
            # Rows of a try whose commit was not answered may be there: under another token.
            token = uuid.uuid4().hex
            tokens = pa.array([token] * rows.num_rows, pa.string())
            renamed = rows.append_column(TOKEN_COLUMN, tokens)
            writer.append(connection, self.target, renamed.rename_columns(self.target.columns))
            return token

        return transactions.run("staging rows", self.target.name, write)


class StagingTable:
    """The driver's side. `results` is the table that the rows are for."""

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
        """The columns are the result table's own, so that they compare alike."""
        if self._exists():
            return
        try:
            with self._engine.begin() as connection:
                for statement in self._ddl():
                    execute(connection, statement)
        except DBAPIError:
            # Another driver has made it at the same time, or else this one may not.
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
        """Run the plan of the frame, once; its rows are in the staging table then."""
        handed = frame.mapInArrow(stager, "token string, rows bigint, error string").collect()
        for row in handed:
            if row["error"] is not None:
                raise PipelineError(row["error"])
        return StagedRows(tuple(row["token"] for row in handed), sum(row["rows"] for row in handed))

    def merge(self, connection: Connection, staged: StagedRows) -> None:
        """Move these rows over. The lock of the query is held, and its epoch is ours."""
        target = self._results.target
        mine = self._where(staged.tokens)
        if staged.tokens:
            self._check_count(connection, mine, staged.rows)
            if target.key:
                self._check_keys(connection, mine)
            puts = mine
            if self._deletes:
                flag = quote(self._kind, DELETE_COLUMN)
                execute(connection, delete_from(target, self.table.sql, f"{mine} AND {flag}"))
                puts = f"{mine} AND NOT {flag}"
            move = upsert_from if target.key else append_from
            execute(connection, move(target, self.table.sql, puts))
        self.sweep(connection)

    def sweep(self, connection: Connection) -> None:
        """Remove every row that is there. The lock of the query is held, and its epoch is ours."""
        if self._kind is not DatabaseKind.MYSQL:
            execute(connection, f"DELETE FROM {self.table.sql}")
            return
        # Without a condition MySQL would wait for tasks that are still writing.
        token = quote(self._kind, TOKEN_COLUMN)
        asked = f"SELECT DISTINCT {token} FROM {self.table.sql}"
        tokens = [str(row[0]) for row in execute(connection, asked)]
        for start in range(0, len(tokens), 100):
            some = self._where(tokens[start : start + 100])
            execute(connection, f"DELETE FROM {self.table.sql}{some}")

    def _where(self, tokens: Sequence[str]) -> str:
        listed = ", ".join(f"'{token}'" for token in tokens)
        return f" WHERE {quote(self._kind, TOKEN_COLUMN)} IN ({listed})"

    def _check_count(self, connection: Connection, mine: str, rows: int) -> None:
        found = execute(connection, f"SELECT count(*) FROM {self.table.sql}{mine}").scalar()
        if found != rows:
            raise PipelineError(
                f"the tasks have written {rows} rows to the staging table {self.table.name}, and "
                f"{found} are there: somebody has changed it. Nothing of the batch was stored; "
                "start the pipeline again"
            )

    def _check_keys(self, connection: Connection, mine: str) -> None:
        key = names(self._kind, self._results.target.key)
        twice = execute(
            connection,
            f"SELECT {key} FROM {self.table.sql}{mine} GROUP BY {key} HAVING count(*) > 1 LIMIT 1",
        ).first()
        if twice is not None:
            pairs = zip(self._results.target.key, twice, strict=True)
            raise duplicate_key_error(", ".join(f"{name} = {value!r}" for name, value in pairs))


def _table_name(key: str, results: PreparedTable) -> str:
    """Another one when the columns are others: tasks of a driver before us may still write."""
    shape = [(name, repr(results.types[name])) for name in results.columns]
    text = repr((key, results.target.name, shape, DELETE_COLUMN in results.schema.names))
    return f"{STAGING_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}"
