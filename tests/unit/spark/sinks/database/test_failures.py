"""Databases that become unavailable at any time, and the resulting errors (D3)."""

import logging
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError

from penstock.spark.errors import MissingPartError, PipelineError
from penstock.spark.progress import StoredProgress
from penstock.spark.sinks.database.engines import open_engine
from penstock.spark.sinks.database.sink import DatabaseSink
from penstock.spark.sinks.database.transactions import Transactions
from penstock.spark.sinks.port import WriteResult
from tests.support.spark.cutting_proxy import CuttingProxy, socket_of, through
from tests.support.spark.database_sinks import at, batch_of, begin, count_of, sink_for, spec_for
from tests.support.spark.databases import (
    DatabaseServer,
    MariaDbServer,
    PostgreSqlServer,
    engine_for,
)

ROWS = pa.table({"n": [1, 2]})


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suppresses tracebacks of connections that are broken on purpose."""
    monkeypatch.setattr(logging.getLogger("sqlalchemy.pool"), "disabled", True)


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    kind = PostgreSqlServer if request.param == "postgresql" else MariaDbServer
    with kind(durable=True) as server:
        yield server


def break_commit(sink: DatabaseSink, *, done: bool, times: int = 1) -> None:
    """Makes the next commits lose their connection, before or after they are done."""
    dialect = sink._engine.dialect
    commit = dialect.do_commit
    remaining_failures = [times]

    def do_commit(connection: PoolProxiedConnection) -> None:
        if not remaining_failures[0]:
            commit(connection)
            return
        remaining_failures[0] -= 1
        if done:
            commit(connection)
        driver = connection.driver_connection
        assert driver is not None
        driver.close()
        raise lost(sink)

    dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]


def lost(sink: DatabaseSink) -> Exception:
    if sink._engine.dialect.name == "postgresql":
        return psycopg.OperationalError("server closed the connection unexpectedly")
    module = sink._engine.dialect.dbapi
    assert module is not None
    return module.OperationalError(2013, "Lost connection to MySQL server during query")


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_commit_without_a_response(server: DatabaseServer, done: bool) -> None:
    url = server.fresh()
    with engine_for(url) as engine, sink_for(spec_for(url)) as sink:
        begin(sink)
        sink.write_table(ROWS, batch_of(0))
        break_commit(sink, done=done)
        assert sink.write_table(ROWS, batch_of(1)) == WriteResult(2)
        break_commit(sink, done=done, times=2)
        assert sink.open("two") == StoredProgress(at(20), "q1", 1)
        assert count_of(engine, "results") == 4


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_the_response_to_a_commit_is_lost(
    server: DatabaseServer, done: bool, tmp_path: Path
) -> None:
    """The same with a real connection that is cut when COMMIT passes."""
    direct = server.fresh()
    path = socket_of(direct)
    with (
        CuttingProxy(path, tmp_path / path.name) as proxy,
        engine_for(direct) as engine,
        sink_for(spec_for(through(direct, proxy))) as sink,
    ):
        begin(sink)
        sink.write_table(ROWS, batch_of(0))
        proxy.cut_next(b"COMMIT", forward=done)
        assert sink.write_table(ROWS, batch_of(1)) == WriteResult(2)
        assert proxy.has_cut
        assert count_of(engine, "results") == 4
        assert count_of(engine, "penstock_batch") == 2


def test_a_server_killed_between_batches(server: DatabaseServer) -> None:
    url = server.fresh()
    with sink_for(spec_for(url)) as sink:
        begin(sink)
        sink.write_table(ROWS, batch_of(0))
        server.kill()
        server.start()
        assert sink.write_table(ROWS, batch_of(1)) == WriteResult(2)
        with engine_for(url) as engine:
            assert count_of(engine, "results") == 4


# PyMySQL does not close a socket that failed to connect.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_database_that_stays_unreachable_is_an_error(server: DatabaseServer) -> None:
    url = server.fresh()
    with sink_for(spec_for(url), patience_seconds=0.3) as sink:
        begin(sink)
        sink.write_table(ROWS, batch_of(0))
        server.kill()
        try:
            with pytest.raises(PipelineError, match=r"batch 1 into results: the database has been"):
                sink.write_table(ROWS, batch_of(1))
            with pytest.raises(PipelineError, match="the database has been unavailable"):
                sink.open("one")
        finally:
            server.start()
        assert sink.write_table(ROWS, batch_of(1)) == WriteResult(2)


def test_wrong_addresses(server: DatabaseServer) -> None:
    """Retrying does not help."""
    url = server.fresh()
    if url.get_backend_name() == "postgresql":
        wrong = [url.set(database="no_such"), url.set(username="nobody_known")]
    else:
        wrong = [url.set(database="no_such")]
    for wrong_url in wrong:
        with (
            sink_for(spec_for(wrong_url), patience_seconds=1000) as sink,
            pytest.raises(PipelineError, match=r"no_such|nobody_known"),
        ):
            sink.open("one")


def test_deadlocks_are_retried(engine: Engine) -> None:
    """With growing pauses, and a limit."""
    slept: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    transactions = Transactions(engine, "q", 60, clock=lambda: clock[0], sleep=sleep)
    module = engine.dialect.dbapi
    assert module is not None
    if engine.dialect.name == "sqlite":
        error: Exception = module.OperationalError("disk I/O error")
    elif engine.dialect.name == "postgresql":
        error = psycopg.errors.DeadlockDetected("deadlock detected")
    else:
        error = module.OperationalError(1213, "Deadlock found when trying to get lock")
    tries = []

    def action() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise error
        return 7

    if engine.dialect.name == "sqlite":
        with pytest.raises(PipelineError, match="disk I/O error"):
            transactions.attempt("trying", "results", action)
        return
    assert transactions.attempt("trying", "results", action) == 7
    assert slept == [0.05, 0.1, 0.2]

    def never() -> int:
        raise error

    with pytest.raises(PipelineError, match="has been unavailable for"):
        transactions.attempt("trying", "results", never)
    assert max(slept) == 5
    assert 50 < clock[0] < 70


ADDRESSES = {
    "not an address": "cannot be read",
    "nosuch://host/db": "no such kind of database",
    "sqlite://": "database in memory",
    "postgresql+asyncpg://host/db": "asyncio|needs the Python package asyncpg",
    "postgresql+psycopg2://host/db": "cannot be used|needs the Python package psycopg2",
    "oracle://host/db": "needs the Python package|not in oracle",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises((PipelineError, MissingPartError), match=ADDRESSES[address]):
        open_engine(address, 1)


def test_passwords_are_not_shown() -> None:
    with pytest.raises(PipelineError) as caught:
        open_engine("nosuch://me:secret@host/db", 1)
    assert "secret" not in str(caught.value)


def test_statements_are_not_shown(engine: Engine) -> None:
    """Statements can be megabytes long and contain confidential values."""
    transactions = Transactions(engine, "q", 1)
    with pytest.raises(PipelineError) as caught:
        transactions.run("x", "t", lambda connection: connection.exec_driver_sql("SELECT nosuch"))
    assert not isinstance(caught.value.__cause__, DBAPIError)
    assert "[SQL" not in str(caught.value)
