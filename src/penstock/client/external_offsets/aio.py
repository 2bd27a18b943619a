"""Results and offsets in one database transaction, on an event loop.

The same as `transaction.py`, with SQLAlchemy's AsyncEngine.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncTransaction

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import IllegalStateError
from penstock.client.external_offsets.ledger import Ledger
from penstock.client.external_offsets.model import Move
from penstock.client.external_offsets.store import OffsetStore, begin, check_group_id
from penstock.client.external_offsets.transaction import (
    ENDED,
    ENDED_BY_HAND,
    NESTED,
    Mirror,
    check_commits_together,
)
from penstock.core.ids import TopicPartition


class AsyncReader(Protocol):
    """What a consumer must be able to do: `Reader`, but for one call that waits."""

    def assignment(self) -> Collection[TopicPartition]: ...

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]: ...

    async def start(self, partition: TopicPartition) -> OffsetAndMetadata: ...

    def seek(self, partition: TopicPartition, position: OffsetAndMetadata) -> None: ...


class AioTransaction:
    """An open block of `consumer.transaction`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._root: AsyncTransaction | None = None
        self._ended = False

    async def connection(self) -> AsyncConnection:
        """The connection of the one transaction that results and offsets are saved in.

        The database hears of the transaction when this is first asked for: a poll that brings
        nothing costs it nothing. Do not commit: the end of the block does.
        """
        if self._ended:
            raise IllegalStateError(ENDED)
        if self._connection is None:
            self._connection = await self._engine.connect()
            self._root = await self._connection.begin()
            await self._connection.run_sync(begin)
        return self._connection

    @property
    def shared(self) -> AsyncConnection | None:
        """The connection, if it keeps all others from writing: SQLite lets one write at a time."""
        connection = self._connection
        return connection if connection and connection.dialect.name == "sqlite" else None

    async def _save(
        self, store: OffsetStore, group_id: str, moves: Mapping[TopicPartition, Move]
    ) -> None:
        if self._connection is None and not moves:
            return
        connection = await self.connection()
        if self._root is None or not self._root.is_active:
            raise IllegalStateError(ENDED_BY_HAND)
        await connection.run_sync(store.save, group_id, moves)
        await connection.commit()

    async def _close(self) -> None:
        """What is not committed is rolled back, here or, if it cannot be told, by the database."""
        self._ended = True
        if self._connection is None:
            return
        try:
            await self._connection.close()
        except DBAPIError:
            if not self._connection.closed:
                await self._connection.invalidate()
                await self._connection.close()


class AioOutsideOffsets:
    """`OutsideOffsets` for a consumer on an event loop."""

    def __init__(
        self,
        reader: AsyncReader,
        engine: AsyncEngine,
        group_id: str,
        *,
        store: OffsetStore | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """`mirror` is told what was saved, as a courtesy: it must neither block nor raise."""
        check_group_id(group_id)
        self.reader = reader
        self.engine = engine
        self.group_id = group_id
        self.store = store if store is not None else OffsetStore()
        self._mirror = mirror
        self._ledger = Ledger()
        self._open: AioTransaction | None = None
        self._checked = False

    async def prepare(self) -> None:
        """Seeks where the database says, in partitions that it was not asked for yet."""
        await self._check_database()
        await self._load(self._ledger.unknown(self.reader.assignment()))

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """The group has given these to the consumer: nothing of them has been read yet."""
        await self._load(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These go, or are gone."""
        self._ledger.revoked(partitions, self.reader.consumed())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AioTransaction]:
        """Results and offsets are saved together when the block ends, and both not if it raises."""
        if self._open is not None:
            raise IllegalStateError(NESTED)
        await self.prepare()
        self._open = transaction = AioTransaction(self.engine)
        try:
            yield transaction
            moves = self._ledger.moves(self.reader.assignment(), self.reader.consumed())
            await transaction._save(self.store, self.group_id, moves)
        except BaseException:
            await self._again(transaction)
            raise
        finally:
            self._open = None
        kept = self._ledger.saved(moves)
        await transaction._close()
        if self._mirror is not None and kept:
            self._mirror(kept)

    async def _again(self, transaction: AioTransaction) -> None:
        try:
            # Before anything is awaited, which a cancelled task may not come back from.
            for partition, position in self._ledger.failed(self.reader.consumed()).items():
                self.reader.seek(partition, position)
        finally:
            await transaction._close()

    async def _load(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        await self._check_database()
        async with self._connect() as connection:
            stored = await connection.run_sync(self.store.read, self.group_id, partitions)
        new = {each: await self.reader.start(each) for each in partitions if each not in stored}
        if new:
            async with self._connect() as connection:
                await connection.run_sync(self.store.add, self.group_id, new)
            # Another consumer may have been quicker: what is stored counts.
            async with self._connect() as connection:
                stored |= await connection.run_sync(self.store.read, self.group_id, list(new))
        for partition in partitions:
            self.reader.seek(partition, self._ledger.loaded(partition, stored[partition]))

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncConnection]:
        shared = self._open.shared if self._open is not None else None
        if shared is not None:
            yield shared
        else:
            async with self.engine.begin() as connection:
                yield connection

    async def _check_database(self) -> None:
        if self._checked:
            return
        async with self.engine.connect() as connection:
            await connection.run_sync(check_commits_together)
        try:
            async with self.engine.begin() as connection:
                await connection.run_sync(self.store.create_table)
        except DBAPIError:
            # Another process has made it at the same time, or else this one may not.
            async with self.engine.connect() as connection:
                if not await connection.run_sync(self.store.exists):
                    raise
        self._checked = True
