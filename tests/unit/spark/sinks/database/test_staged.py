"""Staged rows: exactly those whose tokens are returned are merged (D3)."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import URL, Connection, text

from penstock.spark.errors import FencedError, PipelineError
from penstock.spark.sinks.database.sink import DatabaseSink
from penstock.spark.sinks.database.staged import StagedRows, Stager, StagingTable
from penstock.spark.sinks.port import WriteResult
from tests.support.spark.cutting_proxy import CuttingProxy, socket_of, through
from tests.support.spark.database_sinks import (
    batch_of,
    begin,
    count_of,
    rows_of,
    sink_for,
    spec_for,
)
from tests.support.spark.databases import DatabaseServer, engine_for

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> URL:
    server: DatabaseServer = request.getfixturevalue(request.param)
    return server.fresh()


def batches(*parts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield pa.record_batch([list(part), [f"n{n}" for n in part]], schema=SCHEMA)


class Driver:
    """Writes a batch as the driver, with tasks that run in this process."""

    def __init__(self, sink: DatabaseSink, url: URL) -> None:
        self.sink = sink
        self.staging = StagingTable(sink._engine, sink._key, sink._prepare(SCHEMA))
        self.staging.create()
        self._url = url

    def stage(self, *parts: Sequence[int], url: URL | None = None) -> StagedRows:
        """One attempt of a task."""
        address = (url or self._url).render_as_string(hide_password=False)
        key = self.sink._spec.key
        stager = Stager(address, "q", self.staging.table, key, 20, 20)
        handed = [row for result in stager(batches(*parts)) for row in result.to_pylist()]
        assert [row["error"] for row in handed] == [None] * len(handed)
        return StagedRows(tuple(row["token"] for row in handed), sum(row["rows"] for row in handed))

    def merge(self, number: int, staged: StagedRows) -> WriteResult:
        def put(connection: Connection) -> int:
            self.staging.merge(connection, staged)
            return staged.rows

        return self.sink._apply(batch_of(number), put, None)


def test_only_the_returned_tokens_are_merged(url: URL) -> None:
    with sink_for(spec_for(url, writing="staged")) as sink, engine_for(url) as engine:
        begin(sink)
        driver = Driver(sink, url)
        failed = driver.stage([1, 2])
        staged = driver.stage([1], [], [2, 3])
        assert len(staged.tokens) == 2
        assert not set(failed.tokens) & set(staged.tokens)
        assert driver.merge(0, staged) == WriteResult(3)
        assert sorted(str(row["name"]) for row in rows_of(engine)) == ["n1", "n2", "n3"]
        assert count_of(engine, driver.staging.table.table) == 0
        assert driver.merge(1, StagedRows((), 0)) == WriteResult(0)


def test_upserts_of_keys_alone(url: URL) -> None:
    """An existing row needs no change."""
    spec = spec_for(url, mode="upsert", key=["id", "name"], writing="staged")
    with sink_for(spec) as sink, engine_for(url) as engine:
        begin(sink)
        driver = Driver(sink, url)
        for number in range(2):
            assert driver.merge(number, driver.stage([1, 2])) == WriteResult(2)
        assert count_of(engine, "results") == 2


def test_a_task_that_still_writes_does_not_block_others(url: URL) -> None:
    """Its rows are removed with the next batch."""
    spec = spec_for(url, writing="staged")
    with sink_for(spec, lock_wait_seconds=2) as sink, engine_for(url) as engine:
        begin(sink)
        driver = Driver(sink, url)
        name = driver.staging.table.table
        staged = driver.stage([1])
        with engine.begin() as zombie:
            zombie.execute(text(f"INSERT INTO {name} VALUES (7, 'x', 'zombie')"))
            assert driver.merge(0, staged) == WriteResult(1)
        assert count_of(engine, name) == 1
        assert driver.merge(1, driver.stage([2])) == WriteResult(1)
        assert count_of(engine, name) == 0
        assert count_of(engine, "results") == 2


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_task_whose_commit_had_no_response(
    url: URL, done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("sqlalchemy.pool"), "disabled", True)
    path = socket_of(url)
    with (
        CuttingProxy(path, tmp_path / path.name) as proxy,
        sink_for(spec_for(url, writing="staged")) as sink,
        engine_for(url) as engine,
    ):
        begin(sink)
        driver = Driver(sink, url)
        behind = through(url, proxy)
        # Setting up a connection commits, too.
        rows = b"INSERT" if url.get_backend_name() == "mysql" else b"COPY"
        proxy.cut_next(b"COMMIT", forward=done, after=rows)
        staged = driver.stage([1, 2], url=behind)
        assert proxy.has_cut
        assert driver.merge(0, staged) == WriteResult(2)
        assert count_of(engine, "results") == 2
        assert count_of(engine, driver.staging.table.table) == 0


def test_staged_rows_that_are_missing(url: URL) -> None:
    with sink_for(spec_for(url, writing="staged")) as sink, engine_for(url) as engine:
        begin(sink)
        driver = Driver(sink, url)
        staged = driver.stage([1, 2])
        with engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {driver.staging.table.table} WHERE id = 1"))
        with pytest.raises(PipelineError, match=r"written 2 rows to the staging table.*1 exist"):
            driver.merge(0, staged)
        assert count_of(engine, "results") == 0


def test_a_replaced_driver_removes_nothing(url: URL) -> None:
    """It cannot remove the rows of its successor's batch."""
    spec = spec_for(url, mode="upsert", key=["id"], writing="staged")
    with sink_for(spec) as old, sink_for(spec) as new, engine_for(url) as engine:
        begin(old)
        replaced = Driver(old, url)
        stale = replaced.stage([1])
        new.open("two")
        driver = Driver(new, url)
        staged = driver.stage([1, 2])
        with pytest.raises(FencedError):
            replaced.merge(0, stale)
        assert driver.merge(0, staged) == WriteResult(2)
        assert count_of(engine, "results") == 2
        assert count_of(engine, driver.staging.table.table) == 0
