"""Results and offsets in one database transaction, for blocking consumers.

Generated from src/penstock/client/external_offsets/aio.py by tools/unasync.py: edit that file.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import IllegalStateError
from penstock.client.external_offsets.model import Mirror, OffsetUpdate
from penstock.client.external_offsets.store import (
    OffsetStore,
    begin,
    check_group_id,
    refuse_autocommit,
)
from penstock.client.external_offsets.tracker import OffsetTracker
from penstock.core.ids import TopicPartition


class Reader(Protocol):
    """The methods of a consumer that external offsets need."""

    def assignment(self) -> Collection[TopicPartition]:
        """Returns the partitions that the consumer reads now."""

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Returns the next position of each partition that was polled from since its `seek`."""

    def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        """Returns the first position of a partition without an offset: by `auto_offset_reset`."""

    def seek(self, partition: TopicPartition, position: OffsetAndMetadata) -> None:
        """Continues from this position. Ignores partitions that are not assigned any more."""


class Transaction:
    """The open block of a `consumer.transaction`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._root: RootTransaction | None = None
        self._is_ended = False

    @property
    def connection(self) -> Connection:
        """The connection whose one transaction has the results and the offsets.

        The transaction begins with the first access, so that a poll without records costs the
        database nothing. Do not commit: the end of the block does.
        """
        if self._is_ended:
            raise IllegalStateError(
                "this transaction has ended", remedy="use its connection inside of the block"
            )
        if self._connection is None:
            self._connection = self._engine.connect()
            self._root = self._connection.begin()
            begin(self._connection)
        return self._connection

    @property
    def exclusive_connection(self) -> Connection | None:
        """The connection if no other one can write during the transaction, as in SQLite."""
        connection = self._connection
        return connection if connection and connection.dialect.name == "sqlite" else None

    def _save(
        self, store: OffsetStore, group_id: str, updates: Mapping[TopicPartition, OffsetUpdate]
    ) -> None:
        if self._connection is None and not updates:
            return
        connection = self.connection
        if self._root is None or not self._root.is_active:
            raise IllegalStateError(
                "the transaction was ended inside of its block, so that offsets cannot be saved "
                "with the results",
                remedy="leave commit and rollback to `with consumer.transaction()`",
            )
        store.save(connection, group_id, updates)
        connection.commit()

    def _close(self) -> None:
        """Rolls back what is not committed, or has the database do so if the connection is lost."""
        self._is_ended = True
        if self._connection is None:
            return
        try:
            self._connection.close()
        except DBAPIError:
            if not self._connection.closed:
                self._connection.invalidate()
                self._connection.close()


class ExternalOffsets:
    """Keeps the offsets of a consumer in a database, with its results.

    Call `prepare` before each poll, `assigned` and `revoked` when a group rebalances (`revoked`
    also for lost partitions). The consumers of `penstock.client` do all of that.
    """

    def __init__(
        self,
        reader: Reader,
        engine: Engine,
        group_id: str,
        *,
        store: OffsetStore | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """`mirror` is called with the saved positions; it must neither block nor raise."""
        check_group_id(group_id)
        self.reader = reader
        self.engine = engine
        self.group_id = group_id
        self.store = store if store is not None else OffsetStore()
        self._mirror = mirror
        self._tracker = OffsetTracker()
        self._open: Transaction | None = None
        self._is_database_checked = False

    def prepare(self) -> None:
        """Seeks to the stored offsets of all assigned partitions that were not loaded yet."""
        self._check_database()
        self._load(self._tracker.missing(self.reader.assignment()))

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Seeks to the stored offsets of partitions that the group has just assigned."""
        self._load(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions that the group revokes or the consumer has lost."""
        self._tracker.revoke(partitions, self.reader.consumed())

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Saves results and offsets together at the end of the block, or neither if it raises.

        The offsets are those of all records that were polled since the last transaction. If they
        are not saved, the same records are polled again.
        """
        if self._open is not None:
            raise IllegalStateError(
                "a transaction of this consumer is open; transactions cannot be nested"
            )
        self.prepare()
        self._open = transaction = Transaction(self.engine)
        try:
            yield transaction
            updates = self._tracker.updates(self.reader.assignment(), self.reader.consumed())
            transaction._save(self.store, self.group_id, updates)
        except BaseException:
            self._roll_back(transaction)
            raise
        finally:
            self._open = None
        positions = self._tracker.commit(updates)
        transaction._close()
        if self._mirror is not None and positions:
            self._mirror(positions)

    def _roll_back(self, transaction: Transaction) -> None:
        try:
            # First: a caller that is interrupted may not get any further.
            for partition, position in self._tracker.roll_back(self.reader.consumed()).items():
                self.reader.seek(partition, position)
        finally:
            transaction._close()

    def _load(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        self._check_database()
        with self._connect() as connection:
            stored = self.store.read(connection, self.group_id, partitions)
        new_positions = {
            partition: self.reader.start(partition)
            for partition in partitions
            if partition not in stored
        }
        if new_positions:
            with self._connect() as connection:
                self.store.add(connection, self.group_id, new_positions)
            # Another consumer may have added them first: the stored offsets count.
            with self._connect() as connection:
                stored |= self.store.read(connection, self.group_id, list(new_positions))
        for partition in partitions:
            self.reader.seek(partition, self._tracker.load(partition, stored[partition]))

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        exclusive = self._open.exclusive_connection if self._open is not None else None
        if exclusive is not None:
            yield exclusive
        else:
            with self.engine.begin() as connection:
                yield connection

    def _check_database(self) -> None:
        if self._is_database_checked:
            return
        with self.engine.connect() as connection:
            refuse_autocommit(connection)
        try:
            with self.engine.begin() as connection:
                self.store.create_table(connection)
        except DBAPIError:
            # Another process may have created the table at the same time.
            with self.engine.connect() as connection:
                if not self.store.exists(connection):
                    raise
        self._is_database_checked = True
