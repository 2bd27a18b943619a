"""Classifies the errors of databases: retriable, lock timeout, or a problem that a user must fix.

It uses the databases' error codes, not their messages, which may be translated.
"""

import re
import sqlite3
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from penstock.spark.errors import PipelineError, printable
from penstock.spark.sinks.database.engines import database_kind
from penstock.spark.sinks.database.names import DatabaseKind


class ErrorKind(Enum):
    RETRIABLE = "retriable"
    LOCK_TIMEOUT = "lock timeout"
    BAD_VALUE = "bad value"
    DUPLICATE = "duplicate"
    """A row with the same unique value exists, or is in the batch twice."""
    DENIED = "denied"
    OTHER = "other"


_PG_STATES: Final[Mapping[str, ErrorKind]] = {
    "08": ErrorKind.RETRIABLE,  # connection
    "40001": ErrorKind.RETRIABLE,  # serialization failure
    "40P01": ErrorKind.RETRIABLE,  # deadlock
    "57P01": ErrorKind.RETRIABLE,  # the server is stopped
    "57P02": ErrorKind.RETRIABLE,  # crash of another server process
    "57P03": ErrorKind.RETRIABLE,  # the server is starting
    "53300": ErrorKind.RETRIABLE,  # too many connections
    "25006": ErrorKind.RETRIABLE,  # a standby, which was the primary or becomes it
    "55P03": ErrorKind.LOCK_TIMEOUT,
    "23505": ErrorKind.DUPLICATE,
    "21000": ErrorKind.DUPLICATE,
    "22": ErrorKind.BAD_VALUE,
    "23": ErrorKind.BAD_VALUE,
    "42501": ErrorKind.DENIED,
    "28": ErrorKind.DENIED,
}
"""By PostgreSQL's state, or by its class, which is its first two characters."""

_MY_CODES: Final[Mapping[ErrorKind, Collection[int]]] = {
    ErrorKind.RETRIABLE: {
        1020,  # a row is newer than the snapshot
        1040,  # too many connections
        1053,  # the server is stopped
        1213,  # deadlock
        1290,  # read-only: a replica, which was the primary or becomes it
        1792,  # the same, for a transaction
        1836,
        1927,  # the connection was killed
        2002,  # cannot connect
        2003,
        2006,  # the server has gone away
        2013,  # lost connection
        2055,
        4031,  # disconnected for being idle
    },
    ErrorKind.LOCK_TIMEOUT: {1205},
    ErrorKind.DUPLICATE: {1062, 1586},
    ErrorKind.BAD_VALUE: {
        *(1048, 1153, 1216, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1416, 1425, 1426, 1452),
        *(1690, 3140, 3141, 3156, 3819, 3988, 4025, 1977, 1300),
    },
    ErrorKind.DENIED: {1044, 1045, 1142, 1143, 1227, 1698, 1370},
}


def classify_error(error: Exception, engine: Engine) -> ErrorKind:
    cause = original(error)
    kind = database_kind(engine)
    if kind is DatabaseKind.SQLITE:
        return _of_sqlite(cause)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return ErrorKind.RETRIABLE
    error_kind = _of_mysql(cause) if kind is DatabaseKind.MYSQL else _of_postgresql(cause)
    if error_kind is ErrorKind.OTHER and is_disconnect(cause, engine):
        return ErrorKind.RETRIABLE
    return error_kind


def original(error: BaseException) -> BaseException:
    """Returns the driver's own error."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig
    return error


def is_disconnect(error: BaseException, engine: Engine) -> bool:
    module = engine.dialect.dbapi
    if module is None or not isinstance(error, module.Error):
        return False
    return engine.dialect.is_disconnect(error, None, None)


def _of_sqlite(cause: BaseException) -> ErrorKind:
    if isinstance(cause, OverflowError | sqlite3.IntegrityError):
        code = getattr(cause, "sqlite_errorname", "")
        is_duplicate = code in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")
        return ErrorKind.DUPLICATE if is_duplicate else ErrorKind.BAD_VALUE
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ErrorKind.LOCK_TIMEOUT
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return ErrorKind.DENIED
    if code in (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH) or isinstance(
        cause, sqlite3.DataError
    ):
        return ErrorKind.BAD_VALUE
    return ErrorKind.OTHER


def _of_postgresql(cause: BaseException) -> ErrorKind:
    state: str | None = getattr(cause, "sqlstate", None)
    if state is None:
        return _of_no_connection(str(cause)) if _is_operational(cause) else ErrorKind.OTHER
    return _PG_STATES.get(state) or _PG_STATES.get(state[:2], ErrorKind.OTHER)


def _is_operational(cause: BaseException) -> bool:
    return any(base.__name__ == "OperationalError" for base in type(cause).__mro__)


def _of_no_connection(text: str) -> ErrorKind:
    """Classifies a refused connection by its message: libpq reports no code for it."""
    if "FATAL" not in text:
        return ErrorKind.RETRIABLE
    if re.search(r"starting up|shutting down|recovery|too many|remaining connection", text):
        return ErrorKind.RETRIABLE
    if re.search(r"does not exist", text):
        return ErrorKind.OTHER
    return ErrorKind.DENIED


def _of_mysql(cause: BaseException) -> ErrorKind:
    code = cause.args[0] if cause.args else None
    return next((kind for kind, codes in _MY_CODES.items() if code in codes), ErrorKind.OTHER)


def explain(error: Exception, kind: ErrorKind, operation: str, table: str) -> PipelineError:
    """Returns the error for the user: the operation, the cause, and what to do."""
    cause = original(error)
    reason = reason_of(cause)
    if kind is ErrorKind.BAD_VALUE:
        return PipelineError(
            f"{operation}: {_column(cause)}a value does not fit: {reason}. Nothing of the batch "
            "was stored",
            remedy="change the column in the database, or cast, shorten or leave out such values "
            "in the query, then start the pipeline again",
        )
    if kind is ErrorKind.DUPLICATE:
        return PipelineError(
            f"{operation}: a row with the same unique value exists already, or is twice in the "
            f"batch: {reason}. Nothing of the batch was stored. To replace rows use "
            f"`mode: upsert` with `key`; to add them, {table} must not have this unique index"
        )
    if kind is ErrorKind.DENIED:
        return PipelineError(
            f"{operation}: the database refuses: {reason}",
            remedy="check user, password and rights: the user must read and write the result "
            "table and the tables penstock_*, and create them if they are missing",
        )
    return PipelineError(f"{operation}: {reason}. Nothing of the batch was stored")


def reason_of(error: BaseException) -> str:
    """Returns the message of the database in one line, without the statement."""
    cause = original(error)
    diagnostics = getattr(cause, "diag", None)
    primary = getattr(diagnostics, "message_primary", None)
    if primary:
        parts = [primary, getattr(diagnostics, "message_detail", None)]
        text = "; ".join(part for part in parts if part)
    elif len(cause.args) > 1 and isinstance(cause.args[1], str):
        text = cause.args[1]
    else:
        text = str(cause)
    return printable(" ".join(text.split()))[:1000].rstrip(".")


_COPY_COLUMN: Final = re.compile(r"COPY .*?, (?:line|row) \d+, column (.+?)(?:: |$)", re.MULTILINE)


def _column(cause: BaseException) -> str:
    """Returns the column if PostgreSQL reports it; others name it in the message."""
    diagnostics = getattr(cause, "diag", None)
    column = getattr(diagnostics, "column_name", None)
    if not column:
        match = _COPY_COLUMN.search(getattr(diagnostics, "context", None) or "")
        column = match.group(1) if match else None
    return f"column {column}: " if column else ""
