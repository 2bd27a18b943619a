"""Tables of databases as a kind of sink: see `sinks/kind.py`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from penstock.spark.database_url import without_password
from penstock.spark.errors import PipelineError, SparkPartError
from penstock.spark.pipeline.model import PipelineSpec, Problem, SinkSpec
from penstock.spark.pipeline.nearest import suggestion
from penstock.spark.sinks.database.names import (
    DatabaseKind,
    check_column_name,
    checked_table_name,
    kind_of_backend,
)
from penstock.spark.sinks.kind import (
    CommonFields,
    LastBatch,
    SinkKind,
    SinkState,
    missing_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlalchemy import Connection

    from penstock.spark.check.databases import Databases
    from penstock.spark.check.relations import Relation
    from penstock.spark.pipeline.yaml_nodes import Part
    from penstock.spark.sinks.port import Sink

Mode: TypeAlias = Literal["append", "upsert"]
SinkWriting: TypeAlias = Literal["driver", "staged"]

_STATE_LOCK_WAIT_S = 10.0
_URL = re.compile(r"([A-Za-z][A-Za-z0-9]*)(\+[A-Za-z0-9_]+)?://")
_SQL_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""A string literal of Spark's SQL."""


@dataclass(frozen=True, kw_only=True)
class DatabaseSinkSpec(SinkSpec):
    """A table of a database."""

    database: str
    table: str
    mode: Mode = "append"
    key: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    """If rows of a batch have the same key, the last one in this order is stored."""
    delete_when: str | None = None
    """A condition in SQL: rows for which it is true delete the row with their key."""
    writing: SinkWriting = "driver"
    create_table: bool = True

    def only_decides(self, column: str) -> bool:
        """Whether a column only selects rows or marks deletions, so the table may lack it."""
        condition = _SQL_STRING.sub(" ", self.delete_when or "")
        word = rf"(?<!\w){re.escape(column)}(?!\w)"
        return column in self.order_by or bool(re.search(word, condition, re.IGNORECASE))


class DatabaseSinkKind(SinkKind[DatabaseSinkSpec]):
    spec_type = DatabaseSinkSpec
    keys = (
        "database", "table", "mode", "key", "order_by", "delete_when", "writing", "create_table",
    )  # fmt: skip
    required_keys = "database and table"
    dead_letters_with_rows = "table"

    def parse(self, part: "Part", common: CommonFields) -> DatabaseSinkSpec:
        return DatabaseSinkSpec(
            **common,
            database=part.database("database") or "",
            table=part.text("table", required=True) or "",
            key=part.texts("key"),
            order_by=part.texts("order_by"),
            delete_when=part.text("delete_when", raw=True),
            mode=cast("Mode | None", part.choice("mode", get_args(Mode))) or DatabaseSinkSpec.mode,
            writing=cast("SinkWriting | None", part.choice("writing", get_args(SinkWriting)))
            or DatabaseSinkSpec.writing,
            create_table=part.flag("create_table") is not False,
        )

    # --- validate

    def choices(self, sink: DatabaseSinkSpec) -> Iterator[tuple[str, str, Sequence[str]]]:
        yield "mode", sink.mode, get_args(Mode)
        yield "writing", sink.writing, get_args(SinkWriting)

    def check(self, sink: DatabaseSinkSpec, relation: "Relation") -> Iterator[Problem]:
        from penstock.spark.check.sql_parse import may_use_keyword_as_column, refusal_of

        url = _URL.match(sink.database)
        if url is None:
            message = (
                f"{without_password(sink.database)!r} is not the address of a database, such as "
                "sqlite:///results.db or postgresql://user:password@host/database"
            )
            yield sink.problem("database", message)
        elif url[1].lower() == "sqlite" and sink.writing == "staged":
            message = "SQLite is written by the driver only: leave writing out"
            yield sink.problem("writing", message)
        yield from _name_problems(sink, relation)
        if sink.mode == "upsert" and not sink.key:
            message = "upsert needs key: the columns by which a row is found again"
            yield sink.problem("key", message)
        if sink.mode == "append":
            for key, value in (("order_by", sink.order_by), ("delete_when", sink.delete_when)):
                if value:
                    yield sink.problem(key, f"{key} goes with `mode: upsert` only")
        yield from missing_columns(sink, "key", sink.key, relation)
        yield from missing_columns(sink, "order_by", sink.order_by, relation)
        refusal = refusal_of(sink.delete_when or "")
        if refusal is not None:
            yield sink.problem("delete_when", refusal.message)
        elif sink.delete_when is not None:
            messages = list(_condition_problems(sink.delete_when, relation))
            names = {name.lower() for name in relation.names}
            condition = f"SELECT * FROM rows WHERE {sink.delete_when}"
            if messages and not may_use_keyword_as_column(condition, names):
                yield from (sink.problem("delete_when", message) for message in messages)

    def check_tables(
        self, sink: DatabaseSinkSpec, relation: "Relation", databases: "Databases"
    ) -> Iterator[Problem]:
        if not sink.database or not sink.table:
            return
        try:
            columns = databases.columns(sink.database, sink.table)
        except (SparkPartError, ImportError) as error:
            yield sink.problem("database", str(error))
            return
        if columns is None:
            if not sink.create_table:
                message = f"there is no table {sink.table}, and create_table is false: create it"
                yield sink.problem("table", message)
            return
        names = [column.name for column in columns]
        folded_names = {name.lower() for name in names}
        for name in relation.names:
            if name.lower() not in folded_names and not sink.only_decides(name):
                message = (
                    f"the table {sink.table} has no column {name}, which {sink.view} has"
                    f"{suggestion(name, names)}"
                )
                yield sink.problem("table", message)

    def prefers_update(self, sink: DatabaseSinkSpec) -> bool:
        return sink.mode == "upsert"

    def append_advice(self, sink: DatabaseSinkSpec) -> str:
        advice = super().append_advice(sink)
        return f"{advice}, with `mode: upsert`" if sink.mode == "append" else advice

    # --- plan

    def describe(self, sink: DatabaseSinkSpec) -> str:
        mode = "append" if sink.mode == "append" else f"upsert by {', '.join(sink.key)}"
        if sink.order_by:
            mode += f", the last by {', '.join(sink.order_by)}"
        if sink.delete_when:
            mode += f", delete when {sink.delete_when}"
        return f"{sink.view} into table {sink.table} in {without_password(sink.database)}: {mode}"

    def guarantee(self, sink: DatabaseSinkSpec, dead_letters: str) -> str:
        return f"exactly once: rows{dead_letters} and offsets are one transaction of the database"

    # --- run, rebuild and status

    def create(self, spec: PipelineSpec, sink: DatabaseSinkSpec, spark: "SparkSession") -> "Sink":
        from penstock.spark.sinks.database.sink import DatabaseSink

        table = spec.dead_letters.table if spec.dead_letters is not None else None
        return DatabaseSink(sink, spec.query(sink), dead_letter_table=table)

    def read_state(self, spec: PipelineSpec, sink: DatabaseSinkSpec) -> SinkState | None:
        from sqlalchemy import inspect
        from sqlalchemy.exc import SQLAlchemyError

        from penstock.spark.sinks.database.engines import open_engine, shown_url
        from penstock.spark.sinks.database.failures import reason_of
        from penstock.spark.sinks.database.tables import OWN_TABLES

        engine = open_engine(sink.database, _STATE_LOCK_WAIT_S)
        file = engine.url.database
        is_file = engine.url.get_backend_name() == "sqlite" and file not in (None, "", ":memory:")
        if is_file and not Path(file or "").exists():
            # Connecting would create it.
            return None
        try:
            with engine.connect() as connection:
                inspector = inspect(connection)
                if not all(inspector.has_table(table.name) for table in OWN_TABLES):
                    return None
                return _read_state(connection, spec.query(sink))
        except SQLAlchemyError as error:
            shown = shown_url(engine.url)
            raise PipelineError(f"{shown} cannot be read: {reason_of(error)}") from error
        finally:
            engine.dispose()


def database_kind_of(address: str) -> DatabaseKind | None:
    """Returns the kind of a database by its address; None if that is not one."""
    url = _URL.match(address)
    return None if url is None else kind_of_backend(url[1].lower())


def _name_problems(sink: DatabaseSinkSpec, relation: "Relation") -> Iterator[Problem]:
    kind = database_kind_of(sink.database)
    if kind is None:
        return
    try:
        checked_table_name(kind, sink.table)
    except PipelineError as error:
        yield sink.problem("table", str(error))
    for name in relation.names:
        try:
            check_column_name(kind, name)
        except PipelineError as error:
            yield sink.problem("from", str(error))


def _condition_problems(sql: str, relation: "Relation") -> Iterator[str]:
    from penstock.spark.check.relations import Finding
    from penstock.spark.check.scope import FromItem, Scope, columns_in
    from penstock.spark.check.sql_parse import parse_condition

    condition = parse_condition(sql)
    if isinstance(condition, Finding):
        yield condition.message
    elif condition is not None:
        scope = Scope([FromItem("", relation)])
        for reference in columns_in(condition):
            column = scope.find(reference)
            if isinstance(column, Finding):
                yield column.message


def _read_state(connection: "Connection", key: str) -> SinkState | None:
    from sqlalchemy import select

    from penstock.spark.sinks.database.bookkeeping import Bookkeeping
    from penstock.spark.sinks.database.tables import BATCH

    bookkeeping = Bookkeeping(key)
    owner = bookkeeping.peek(connection)
    if owner is None:
        return None
    stored = bookkeeping.read(connection)
    last_batch = None
    if stored is not None:
        row = connection.execute(
            select(BATCH.c.rows, BATCH.c.dead_letters, BATCH.c.at)
            .where(BATCH.c.pipeline == key, BATCH.c.query_id == stored.query_id)
            .where(BATCH.c.batch_id == stored.batch_id)
        ).first()
        last_batch = None if row is None else LastBatch(row[0], row[1], str(row[2]))
    return SinkState(stored, owner.name, owner.epoch, owner.since, last_batch)
