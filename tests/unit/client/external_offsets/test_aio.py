"""External offsets of the asyncio consumer, with SQLAlchemy's AsyncEngine (C6)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL, Column, Integer, MetaData, String, Table, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import ConfigError, IllegalStateError
from penstock.client.external_offsets.aio import AioExternalOffsets, AioTransaction
from penstock.client.external_offsets.model import OffsetsMovedError
from penstock.client.external_offsets.store import OffsetStore
from penstock.core.ids import TopicPartition
from tests.support.client.fake_consumer import Logs, MemoryReader
from tests.support.spark.databases import PostgreSqlServer, sqlite_url

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
RESULTS = Table(
    "results", MetaData(), Column("id", Integer, primary_key=True), Column("value", String(20))
)

Then = Callable[[AioTransaction], Awaitable[object]]


class AioMemoryReader(MemoryReader):
    async def start(  # type: ignore[override]  # a coroutine in the asyncio twin
        self, partition: TopicPartition
    ) -> OffsetAndMetadata:
        await asyncio.sleep(0)
        return super().start(partition)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    if request.param == "sqlite":
        return sqlite_url(tmp_path).set(drivername="sqlite+aiosqlite")
    server: PostgreSqlServer = request.getfixturevalue("postgresql")
    return server.fresh()


@asynccontextmanager
async def database(url: URL) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(RESULTS.create)
    try:
        yield engine
    finally:
        await engine.dispose()


def attached(engine: AsyncEngine, logs: Logs) -> AioExternalOffsets:
    reader = AioMemoryReader(logs)
    reader.assign([P0])
    return AioExternalOffsets(reader, engine, "g")


async def consume(offsets: AioExternalOffsets, then: Then | None = None) -> list[str]:
    reader = offsets.reader
    assert isinstance(reader, AioMemoryReader)
    async with offsets.transaction() as tx:
        polled = [record.value for record in reader.poll()]
        for value in polled:
            await (await tx.connection()).execute(insert(RESULTS), {"value": value})
        if then is not None:
            await then(tx)
    return polled


async def results(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list(await connection.scalars(select(RESULTS.c.value).order_by(RESULTS.c.id)))


async def stored(engine: AsyncEngine) -> dict[TopicPartition, int]:
    async with engine.connect() as connection:
        matches = await connection.run_sync(OffsetStore().read, "g")
    return {partition: item.position.offset for partition, item in matches.items()}


def test_results_and_offsets_are_stored_together_or_not_at_all(url: URL) -> None:
    logs: Logs = {P0: list("abcde")}

    async def fail(tx: AioTransaction) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with database(url) as engine:
            offsets = attached(engine, logs)
            assert await consume(offsets) == ["a", "b"]
            with pytest.raises(ZeroDivisionError):
                await consume(offsets, fail)
            assert await results(engine) == ["a", "b"]
            assert await stored(engine) == {P0: 2}
            await offsets.prepare()
            assert await consume(attached(engine, logs)) == ["c", "d"]
            with pytest.raises(OffsetsMovedError):
                await consume(offsets)
            assert await consume(offsets) == ["e"]
            assert await consume(offsets) == []
            assert await results(engine) == logs[P0]

    asyncio.run(scenario())


def test_a_cancelled_transaction_is_rolled_back(url: URL) -> None:
    logs: Logs = {P0: list("abcde")}

    async def scenario() -> None:
        async with database(url) as engine:
            offsets = attached(engine, logs)
            inside = asyncio.Event()

            async def wait_forever(tx: AioTransaction) -> None:
                inside.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(consume(offsets, wait_forever))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await results(engine) == []
            assert await consume(offsets) == ["a", "b"]
            assert await results(engine) == ["a", "b"]

    asyncio.run(scenario())


def test_partitions_assigned_and_revoked_during_a_transaction(url: URL) -> None:
    logs: Logs = {P0: list("abcde"), P1: []}

    async def scenario() -> None:
        async with database(url) as engine:
            offsets = attached(engine, logs)
            reader = offsets.reader
            assert isinstance(reader, AioMemoryReader)

            async def revoke_partition(tx: AioTransaction) -> None:
                offsets.revoked([P0])
                reader.unassign([P0])

            assert await consume(offsets, revoke_partition) == ["a", "b"]
            assert await stored(engine) == {P0: 2}
            reader.assign([P0])
            await offsets.assigned([P0])

            async def assign_partition(tx: AioTransaction) -> None:
                reader.assign([P1])
                await offsets.assigned([P1])

            assert await consume(offsets, assign_partition) == ["c", "d"]
            assert await stored(engine) == {P0: 4, P1: 0}

    asyncio.run(scenario())


def test_misuse_is_refused(url: URL) -> None:
    logs: Logs = {P0: list("abcde")}

    async def commit(tx: AioTransaction) -> None:
        await (await tx.connection()).commit()

    async def nest(tx: AioTransaction) -> None:
        await attached_offsets[0].transaction().__aenter__()

    attached_offsets: list[AioExternalOffsets] = []

    async def scenario() -> None:
        async with database(url) as engine:
            offsets = attached(engine, logs)
            attached_offsets.append(offsets)
            with pytest.raises(IllegalStateError, match="leave commit and rollback"):
                await consume(offsets, commit)
            with pytest.raises(IllegalStateError, match="nest"):
                await consume(offsets, nest)
            async with offsets.transaction() as tx:
                pass
            with pytest.raises(IllegalStateError, match="has ended"):
                await tx.connection()
            if engine.dialect.name != "sqlite":
                autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
                with pytest.raises(ConfigError, match="AUTOCOMMIT"):
                    await consume(attached(autocommit, logs))

    asyncio.run(scenario())
