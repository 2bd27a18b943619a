"""Names of tables and columns: what the databases accept, and what is reserved. Works offline.

`validate` and the sink check every name here before it becomes part of a statement; `statements`
quotes it there.
"""

import re
import string
from enum import Enum
from typing import Final

from penstock.spark.errors import COLUMN_PREFIX, PipelineError

OWN_TABLE_NAMES: Final = ("penstock_pipeline", "penstock_offset", "penstock_batch")
TEMPORARY_TABLE: Final = "penstock_rows"
STAGING_PREFIX: Final = "penstock_stage_"

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ASCII_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class DatabaseKind(Enum):
    """The dialects of SQL that need different statements."""

    SQLITE = "SQLite"
    POSTGRESQL = "PostgreSQL"
    MYSQL = "MySQL/MariaDB"


def kind_of_backend(name: str) -> DatabaseKind:
    """Returns the kind by the name of SQLAlchemy's dialect, which begins the address."""
    if name == "sqlite":
        return DatabaseKind.SQLITE
    if name in ("mysql", "mariadb"):
        return DatabaseKind.MYSQL
    return DatabaseKind.POSTGRESQL


def split_name(name: str) -> tuple[str | None, str]:
    """Returns schema and table of `schema.table`."""
    schema, dot, table = name.rpartition(".")
    return (schema if dot else None), table


def checked_table_name(kind: DatabaseKind, name: str) -> tuple[str | None, str]:
    """Returns schema and table of `schema.table`.

    Raises `PipelineError` for a name that the database would change, or that is reserved.
    """
    schema, table = split_name(name)
    check_name(kind, table, "table")
    # Databases differ in the characters whose case they ignore.
    folded = table.casefold()
    if folded in (*OWN_TABLE_NAMES, TEMPORARY_TABLE) or folded.startswith(STAGING_PREFIX):
        raise PipelineError(
            f"the name {table} is reserved for Penstock", remedy="name the table otherwise"
        )
    if kind is DatabaseKind.SQLITE and folded.startswith("sqlite_"):
        raise PipelineError(
            f"the name {table} is reserved for SQLite", remedy="name the table otherwise"
        )
    if schema is None:
        return None, table
    check_name(kind, schema, "schema")
    is_temporary = {
        DatabaseKind.SQLITE: schema.lower() == "temp",
        DatabaseKind.POSTGRESQL: schema.lower().startswith("pg_temp"),
    }
    if is_temporary.get(kind):
        raise PipelineError(
            f"the schema {schema} is dropped with its connection, and the results with it",
            remedy="name another schema, or none",
        )
    return schema, table


def check_column_name(kind: DatabaseKind, name: str) -> None:
    """Raises `PipelineError` for a column that the database would rename, or that is reserved."""
    check_name(kind, name, "column")
    if name.lower().startswith(COLUMN_PREFIX):
        raise PipelineError(
            f"the column {name} has a name that is reserved for Penstock",
            remedy="rename it in the query (AS)",
        )


def check_name(kind: DatabaseKind, name: str, what: str) -> None:
    """Raises `PipelineError` for a name that the database cannot store unchanged."""
    if not name:
        raise PipelineError(f"the name of the {what} is empty")
    if _CONTROL.search(name):
        raise PipelineError(
            f"the name of the {what} {name!r} contains a control character, such as the end of a "
            "line",
            remedy="leave it out",
        )
    if kind is DatabaseKind.MYSQL and ("`" in name or name.endswith(" ")):
        raise PipelineError(
            f"the name of the {what} {name!r} contains a backtick or ends with a space, which "
            f"{kind.value} does not support",
            remedy="rename it",
        )
    if kind is DatabaseKind.POSTGRESQL:
        length, longest, unit = len(name.encode()), 63, "bytes"
    else:
        length, longest, unit = len(name), 64, "characters"
    if kind is not DatabaseKind.SQLITE and length > longest:
        raise PipelineError(
            f"the name of the {what} {name} has more than {longest} {unit}, the maximum of "
            f"{kind.value}",
            remedy="make it shorter",
        )


def fold_name(kind: DatabaseKind, name: str) -> str:
    """Returns the name in the form in which the database compares names of columns.

    Never equal for names that the database distinguishes, except for some letters in MySQL: prefer
    a column whose name is exactly the same.
    """
    if kind is DatabaseKind.POSTGRESQL:
        return name
    return name.translate(_ASCII_LOWER) if kind is DatabaseKind.SQLITE else name.lower()
