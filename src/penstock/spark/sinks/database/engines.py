"""SQLAlchemy engines for the supported databases, configured so that all behave alike.

Times are UTC, a value that does not fit is an error instead of being truncated, a statement sees
what was committed before it began, and waiting for a lock ends after some time.
"""

import sqlite3
from typing import Final, Protocol

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from penstock.spark.database_url import without_password
from penstock.spark.errors import MissingPartError, PipelineError
from penstock.spark.sinks.database.names import DatabaseKind, kind_of_backend

CONNECT_SECONDS: Final = 10

_STRICT: Final = "TRADITIONAL"
"""MySQL's SQL mode that raises errors instead of changing values to make them fit."""


class _Cursor(Protocol):
    def execute(self, statement: str) -> object: ...
    def close(self) -> object: ...


class _DriverConnection(Protocol):
    def cursor(self) -> _Cursor: ...
    def commit(self) -> object: ...


def database_kind(engine: Engine) -> DatabaseKind:
    return kind_of_backend(engine.dialect.name)


def needs_merge(engine: Engine) -> bool:
    """Whether upserts need MERGE: GaussDB is like PostgreSQL, but has no ON CONFLICT."""
    if database_kind(engine) is not DatabaseKind.POSTGRESQL:
        return False
    with engine.connect() as connection:
        version = str(connection.execute(text("SELECT version()")).scalar())
    return "gauss" in version.lower()


def open_engine(database: str, lock_wait_seconds: float) -> Engine:
    """Returns an engine for a database, which does not connect yet.

    Raises `PipelineError` for a database that is not supported, `MissingPartError` for a driver
    that is not installed.
    """
    url = _with_driver(database)
    shown = shown_url(url)
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database in (None, "", ":memory:"):
        raise PipelineError(
            f"{shown} is a database in memory, which is lost with the process, and its progress "
            "with it",
            remedy="give the path of a file (sqlite:////var/lib/results.sqlite)",
        )
    arguments = _connect_arguments(url, lock_wait_seconds)
    try:
        if backend == "sqlite":
            engine = create_engine(url, connect_args=arguments)
        else:
            engine = create_engine(
                url,
                connect_args=arguments,
                pool_pre_ping=True,
                isolation_level="READ COMMITTED",
            )
    except NoSuchModuleError as error:
        raise PipelineError(
            f"{shown}: there is no such kind of database",
            remedy="use sqlite:///…, postgresql+psycopg://… or mysql+pymysql://…",
        ) from error
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"{shown} needs the Python package {error.name}: pip install 'penstock[sql]'"
        ) from error
    _check_dialect(engine, shown)
    _set_up(engine, lock_wait_seconds)
    return engine


def _with_driver(database: str) -> URL:
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        # The cause may quote a part of the password.
        raise PipelineError(
            "the address of the database cannot be read: it must look like "
            "postgresql+psycopg://user:password@host/database, with %40, %2F and %3A for @, / and "
            ": in the password"
        ) from None
    if "@" in (url.host or ""):
        raise PipelineError(
            f"{shown_url(url)}: the user or the password contains @", remedy="write %40 instead"
        )
    drivers = {
        "postgresql": "postgresql+psycopg",
        "mysql": "mysql+pymysql",
        "mariadb": "mariadb+pymysql",
    }
    return url.set(drivername=drivers.get(url.drivername, url.drivername))


def shown_url(url: URL) -> str:
    """Returns the address for messages, without passwords."""
    return without_password(url.render_as_string(hide_password=True))


def _connect_arguments(url: URL, lock_wait_seconds: float) -> dict[str, object]:
    """Returns the connection arguments that the address does not set."""
    arguments: dict[str, object]
    backend = url.get_backend_name()
    if backend == "sqlite":
        # Spark calls the sink from a thread of its own.
        arguments = {"timeout": lock_wait_seconds, "check_same_thread": False}
    elif backend in ("mysql", "mariadb"):
        arguments = {"connect_timeout": CONNECT_SECONDS, "charset": "utf8mb4"}
    else:
        # Keepalives detect a server that disappeared within a minute.
        arguments = {
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "client_encoding": "utf8",
        }
    return {name: value for name, value in arguments.items() if name not in url.query}


def _check_dialect(engine: Engine, shown: str) -> None:
    dialect = engine.dialect
    if dialect.is_async:
        raise PipelineError(
            f"{shown}: {dialect.driver} is for asyncio", remedy="use psycopg, pymysql or sqlite"
        )
    if dialect.name in ("sqlite", "mysql", "mariadb"):
        return
    if not isinstance(dialect, PGDialect):
        raise PipelineError(
            f"{shown}: results can be stored exactly once in SQLite, PostgreSQL, MySQL, MariaDB "
            f"and GaussDB, not in {dialect.name}"
        )
    if not hasattr(getattr(dialect.dbapi, "Cursor", None), "copy"):
        raise PipelineError(
            f"{shown}: the driver {dialect.driver} cannot be used: take postgresql+psycopg://… "
            "(psycopg 3)"
        )


def _set_up(engine: Engine, lock_wait_seconds: float) -> None:
    kind = database_kind(engine)
    if kind is DatabaseKind.SQLITE:
        event.listen(engine, "connect", _disable_implicit_transactions)
        event.listen(engine, "begin", _begin_immediate)
        return
    if kind is DatabaseKind.MYSQL:
        wait = max(1, round(lock_wait_seconds))
        settings = [
            f"SET SESSION sql_mode = '{_STRICT}', time_zone = '+00:00', "
            f"innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {wait}"
        ]
    else:
        settings = [
            "SET TIME ZONE 'UTC'",
            "SET datestyle = 'ISO'",
            f"SET lock_timeout = {max(1, round(lock_wait_seconds * 1000))}",
            # The server releases the locks of a driver that disappeared within a minute.
            "SET tcp_keepalives_idle = 30",
            "SET tcp_keepalives_interval = 10",
            "SET tcp_keepalives_count = 3",
        ]

    def on_connect(connection: _DriverConnection, record: object) -> None:
        cursor = connection.cursor()
        for setting in settings:
            cursor.execute(setting)
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", on_connect)


def _disable_implicit_transactions(connection: sqlite3.Connection, record: object) -> None:
    # By default Python begins a transaction only at the first change.
    connection.isolation_level = None


def _begin_immediate(connection: Connection) -> None:
    # A transaction that begins by reading cannot always be upgraded to write.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
