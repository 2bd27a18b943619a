"""Penstock's own tables next to the results: their definitions, and how they are created."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.sql.elements import quoted_name
from sqlalchemy.types import TypeEngine

from penstock.spark.errors import PipelineError

MAX_NAME: Final = 200
"""Maximum length of keys and source names: MySQL's keys have 3,072 bytes, 4 per character."""

_MAX_TOPIC: Final = 249
_TOPIC_ID: Final = 40
_MYSQL: Final[Mapping[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mariadb_charset": "utf8mb4",
}


def _name(length: int) -> String:
    # Kafka's names are case-sensitive; MySQL's comparison is only with this collation.
    exact = mysql.VARCHAR(length, collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


def _text() -> Text:
    return Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_bin"), "mysql", "mariadb")


def _bytes() -> LargeBinary:
    return LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _time() -> DateTime:
    return DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def _column(
    name: str, kind: TypeEngine[Any], *, primary_key: bool = False, nullable: bool = False
) -> Column[object]:
    # Quoted, because some names are reserved words in one of the databases.
    return Column(
        quoted_name(name, quote=True),
        kind,
        primary_key=primary_key,
        nullable=nullable,
        autoincrement=False,
    )


_METADATA: Final = MetaData()

PIPELINE: Final = Table(
    "penstock_pipeline",
    _METADATA,
    _column("pipeline", _name(MAX_NAME), primary_key=True),
    _column("epoch", BigInteger()),
    _column("owner", _name(255)),
    _column("query_id", _name(100), nullable=True),
    _column("since", _time()),
    **_MYSQL,
)
"""Owners of queries. `query_id` is that of the last batch; empty before it; NULL: never begun."""

OFFSET: Final = Table(
    "penstock_offset",
    _METADATA,
    _column("pipeline", _name(MAX_NAME), primary_key=True),
    _column("source", _name(MAX_NAME), primary_key=True),
    _column("topic", _name(_MAX_TOPIC), primary_key=True),
    _column("topic_id", _name(_TOPIC_ID)),
    _column("part", Integer(), primary_key=True),
    _column("next_offset", BigInteger()),
    _column("batch_id", BigInteger()),
    _column("epoch", BigInteger()),
    **_MYSQL,
)

BATCH: Final = Table(
    "penstock_batch",
    _METADATA,
    _column("pipeline", _name(MAX_NAME), primary_key=True),
    _column("query_id", _name(100), primary_key=True),
    _column("batch_id", BigInteger(), primary_key=True),
    _column("epoch", BigInteger()),
    _column("end_offsets", _text()),
    _column("rows", BigInteger()),
    _column("dead_letters", BigInteger()),
    _column("at", _time()),
    **_MYSQL,
)

OWN_TABLES: Final = (PIPELINE, OFFSET, BATCH)


def dead_letter_table(name: str, schema: str | None = None) -> Table:
    """Returns the table of dead letters, each once per query."""
    return Table(
        quoted_name(name, quote=True),
        MetaData(),
        _column("pipeline", _name(MAX_NAME), primary_key=True),
        _column("source", _name(MAX_NAME), primary_key=True),
        _column("topic", _name(_MAX_TOPIC), primary_key=True),
        _column("topic_id", _name(_TOPIC_ID), primary_key=True),
        _column("partition", Integer(), primary_key=True),
        _column("offset", BigInteger(), primary_key=True),
        _column("timestamp", _time(), nullable=True),
        _column("key", _bytes(), nullable=True),
        _column("value", _bytes(), nullable=True),
        _column("headers", _text(), nullable=True),
        _column("reason", _text()),
        _column("at", _time()),
        _column("replayed_at", _time(), nullable=True),
        schema=schema,
        **_MYSQL,
    )


def create_missing(engine: Engine, tables: Sequence[Table]) -> None:
    """Creates missing tables; raises `PipelineError` if an existing one lacks columns."""
    for table in tables:
        names = _column_names(engine, table)
        if names is None:
            create(engine, table)
            names = _column_names(engine, table) or set()
        missing = [column.name for column in table.columns if column.name not in names]
        if missing:
            raise PipelineError(
                f"the table {table.fullname} exists but is not Penstock's: it lacks "
                f"{', '.join(missing)}",
                remedy="rename it, or give the pipeline another database or schema",
            )


def create(engine: Engine, table: Table) -> None:
    """Creates a table, which another driver may create concurrently."""
    try:
        table.create(engine, checkfirst=False)
    except DBAPIError:
        if not inspect(engine).has_table(table.name, schema=table.schema):
            raise


def _column_names(engine: Engine, table: Table) -> set[str] | None:
    """Returns the names of the table's columns; None if it does not exist."""
    try:
        columns = inspect(engine).get_columns(table.name, schema=table.schema)
    except NoSuchTableError:
        return None
    return {column["name"] for column in columns}
