"""What an error of a database means: try again, somebody has the lock, or tell the user what to do.

Read from the codes of the databases, never from the text that they show, which may be translated.
"""

import re
import sqlite3
from enum import Enum
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.engines import DatabaseKind, database_kind


class ErrorKind(Enum):
    TRY_AGAIN = "try again"
    LOCKED = "locked"
    BAD_VALUE = "bad value"
    TWICE = "twice"
    """A row is there already, or twice in what was written."""
    DENIED = "denied"
    OTHER = "other"


_PG_TRY_AGAIN: Final = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "57P01",  # the server is stopped
    "57P02",  # another process of the server has crashed
    "57P03",  # it is starting
    "53300",  # too many connections
    "25006",  # a standby that takes no writes: it was the primary, or will be
}
_PG_TWICE: Final = {"23505", "21000"}
_MY_TRY_AGAIN: Final = {
    1020,  # a row is newer than the snapshot
    1040,  # too many connections
    1053,  # the server is stopped
    1213,  # deadlock
    1290,  # read-only: it was the primary, or will be
    1792,  # the same, for a transaction
    1836,
    1927,  # the connection was killed
    2002,  # cannot connect
    2003,
    2006,  # the server has gone away
    2013,  # lost connection
    2055,
    4031,  # disconnected for being idle
}
_MY_BAD_VALUE: Final = {
    *(1048, 1153, 1216, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1416, 1425, 1426, 1452),
    *(1690, 3140, 3141, 3156, 3819, 3988, 4025, 1977, 1300),
}
_MY_DENIED: Final = {1044, 1045, 1142, 1143, 1227, 1698, 1370}


def classify_error(error: Exception, engine: Engine) -> ErrorKind:
    cause = original(error)
    kind = database_kind(engine)
    if kind is DatabaseKind.SQLITE:
        return _of_sqlite(cause)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return ErrorKind.TRY_AGAIN
    found = _of_mysql(cause) if kind is DatabaseKind.MYSQL else _of_postgresql(cause)
    if found is ErrorKind.OTHER and is_disconnect(cause, engine):
        return ErrorKind.TRY_AGAIN
    return found


def original(error: Exception) -> BaseException:
    """The driver's own error."""
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
        twice = code in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")
        return ErrorKind.TWICE if twice else ErrorKind.BAD_VALUE
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ErrorKind.LOCKED
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
    if state in _PG_TRY_AGAIN or state.startswith("08"):
        return ErrorKind.TRY_AGAIN
    if state == "55P03":
        return ErrorKind.LOCKED
    if state in _PG_TWICE:
        return ErrorKind.TWICE
    if state[:2] in ("22", "23"):
        return ErrorKind.BAD_VALUE
    if state == "42501" or state[:2] == "28":
        return ErrorKind.DENIED
    return ErrorKind.OTHER


def _is_operational(cause: BaseException) -> bool:
    return any(each.__name__ == "OperationalError" for each in type(cause).__mro__)


def _of_no_connection(text: str) -> ErrorKind:
    """libpq gives no code for a connection that was refused: the server's word is all there is."""
    if "FATAL" not in text:
        return ErrorKind.TRY_AGAIN
    if re.search(r"starting up|shutting down|recovery|too many|remaining connection", text):
        return ErrorKind.TRY_AGAIN
    if re.search(r"does not exist", text):
        return ErrorKind.OTHER
    return ErrorKind.DENIED


def _of_mysql(cause: BaseException) -> ErrorKind:
    code = cause.args[0] if cause.args else None
    if code in _MY_TRY_AGAIN:
        return ErrorKind.TRY_AGAIN
    if code == 1205:
        return ErrorKind.LOCKED
    if code in (1062, 1586):
        return ErrorKind.TWICE
    if code in _MY_BAD_VALUE:
        return ErrorKind.BAD_VALUE
    if code in _MY_DENIED:
        return ErrorKind.DENIED
    return ErrorKind.OTHER


def explain(error: Exception, meaning: ErrorKind, doing: str, table: str) -> PipelineError:
    """The error for the user: what was done, what is wrong, and what to do."""
    cause = original(error)
    said = _said(cause)
    if meaning is ErrorKind.BAD_VALUE:
        return PipelineError(
            f"{doing}: {_place(cause)}a value does not fit: {said}. Nothing of the batch was "
            "stored. Change the column in the database, or cast, cut or leave out such values in "
            "the query, then start the pipeline again"
        )
    if meaning is ErrorKind.TWICE:
        return PipelineError(
            f"{doing}: a row with the same unique value is there already, or is twice in the "
            f"batch: {said}. Nothing of the batch was stored. To replace rows use "
            f"`mode: upsert` with `key`; to add them, {table} must not have this unique index"
        )
    if meaning is ErrorKind.DENIED:
        return PipelineError(
            f"{doing}: the database refuses: {said}. Check user, password and rights: the user "
            "must read and write the result table and the tables penstock_*, and create them "
            "where they are missing"
        )
    return PipelineError(f"{doing}: {said}. Nothing of the batch was stored")


def _said(cause: BaseException) -> str:
    """What the database says, in one line."""
    diagnostics = getattr(cause, "diag", None)
    primary = getattr(diagnostics, "message_primary", None)
    if primary:
        parts = [primary, getattr(diagnostics, "message_detail", None)]
        text = "; ".join(part for part in parts if part)
    elif len(cause.args) > 1 and isinstance(cause.args[1], str):
        text = cause.args[1]
    else:
        text = str(cause)
    return " ".join(text.split())[:1000].rstrip(".")


_COPY_COLUMN: Final = re.compile(r"COPY .*?, (?:line|row) \d+, column (.+?)(?:: |$)", re.MULTILINE)


def _place(cause: BaseException) -> str:
    """The column, where PostgreSQL says it beside the message; MySQL and SQLite say it in it."""
    diagnostics = getattr(cause, "diag", None)
    column = getattr(diagnostics, "column_name", None)
    if not column:
        found = _COPY_COLUMN.search(getattr(diagnostics, "context", None) or "")
        column = found.group(1) if found else None
    return f"column {column}: " if column else ""
