"""Results and offsets in one database transaction.

`OutsideOffsets` goes between a consumer and a database: it makes the consumer start where the
database says, and saves with every transaction how far the consumer has read.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import ConfigError, IllegalStateError
from penstock.client.external_offsets.ledger import Ledger
from penstock.client.external_offsets.model import Move
from penstock.client.external_offsets.store import OffsetStore, begin, check_group_id
from penstock.core.ids import TopicPartition

ENDED = "this transaction has ended: use its connection inside of the block"
ENDED_BY_HAND = (
    "the transaction was ended inside of its block, so offsets can no longer be saved with the "
    "results: leave commit and rollback to `with consumer.transaction()`"
)
NESTED = "a transaction of this consumer is open: they do not nest"

Mirror = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None]


class Reader(Protocol):
    """What a consumer must be able to do; any consumer of Kafka can be made to fit."""

    def assignment(self) -> Collection[TopicPartition]:
        """The partitions that it reads now."""

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Where it reads on, for each partition that records were handed out of since `seek`."""

    def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        """Where to begin in a partition that nothing is stored for, by `auto_offset_reset`."""

    def seek(self, partition: TopicPartition, position: OffsetAndMetadata) -> None:
        """Read on there. A partition that is not assigned any more is left alone."""


class Transaction:
    """An open block of `consumer.transaction`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._root: RootTransaction | None = None
        self._ended = False

    @property
    def connection(self) -> Connection:
        """The connection of the one transaction that results and offsets are saved in.

        The database hears of the transaction when this is first asked for: a poll that brings
        nothing costs it nothing. Do not commit: the end of the block does.
        """
        if self._ended:
            raise IllegalStateError(ENDED)
        if self._connection is None:
            self._connection = self._engine.connect()
            self._root = self._connection.begin()
            begin(self._connection)
        return self._connection

    @property
    def shared(self) -> Connection | None:
        """The connection, if it keeps all others from writing: SQLite lets one write at a time."""
        connection = self._connection
        return connection if connection and connection.dialect.name == "sqlite" else None

    def _save(
        self, store: OffsetStore, group_id: str, moves: Mapping[TopicPartition, Move]
    ) -> None:
        if self._connection is None and not moves:
            return
        connection = self.connection
        if self._root is None or not self._root.is_active:
            raise IllegalStateError(ENDED_BY_HAND)
        store.save(connection, group_id, moves)
        connection.commit()

    def _close(self) -> None:
        """What is not committed is rolled back, here or, if it cannot be told, by the database."""
        self._ended = True
        if self._connection is None:
            return
        try:
            self._connection.close()
        except DBAPIError:
            if not self._connection.closed:
                self._connection.invalidate()
                self._connection.close()


class OutsideOffsets:
    """Keeps the offsets of a consumer in a database, with the results.

    `prepare` is to be called before records are polled, `assigned` and `revoked` when a group
    rebalances (for lost partitions too); `penstock.client.Consumer` does all that by itself.
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
        """`mirror` is told what was saved, as a courtesy: it must neither block nor raise."""
        check_group_id(group_id)
        self.reader = reader
        self.engine = engine
        self.group_id = group_id
        self.store = store if store is not None else OffsetStore()
        self._mirror = mirror
        self._ledger = Ledger()
        self._open: Transaction | None = None
        self._checked = False

    def prepare(self) -> None:
        """Seeks where the database says, in partitions that it was not asked for yet."""
        self._check_database()
        self._load(self._ledger.unknown(self.reader.assignment()))

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """The group has given these to the consumer: nothing of them has been read yet."""
        self._load(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These go, or are gone."""
        self._ledger.revoked(partitions, self.reader.consumed())

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Results and offsets are saved together when the block ends, and both not if it raises.

        The offsets are those of all records that were polled since the last transaction. If they
        are not saved, the same records are polled again.
        """
        if self._open is not None:
            raise IllegalStateError(NESTED)
        self.prepare()
        self._open = transaction = Transaction(self.engine)
        try:
            yield transaction
            moves = self._ledger.moves(self.reader.assignment(), self.reader.consumed())
            transaction._save(self.store, self.group_id, moves)
        except BaseException:
            self._again(transaction)
            raise
        finally:
            self._open = None
        kept = self._ledger.saved(moves)
        transaction._close()
        if self._mirror is not None and kept:
            self._mirror(kept)

    def _again(self, transaction: Transaction) -> None:
        try:
            for partition, position in self._ledger.failed(self.reader.consumed()).items():
                self.reader.seek(partition, position)
        finally:
            transaction._close()

    def _load(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        self._check_database()
        with self._connect() as connection:
            stored = self.store.read(connection, self.group_id, partitions)
        new = {each: self.reader.start(each) for each in partitions if each not in stored}
        if new:
            with self._connect() as connection:
                self.store.add(connection, self.group_id, new)
            # Another consumer may have been quicker: what is stored counts.
            with self._connect() as connection:
                stored |= self.store.read(connection, self.group_id, list(new))
        for partition in partitions:
            self.reader.seek(partition, self._ledger.loaded(partition, stored[partition]))

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        shared = self._open.shared if self._open is not None else None
        if shared is not None:
            yield shared
        else:
            with self.engine.begin() as connection:
                yield connection

    def _check_database(self) -> None:
        if self._checked:
            return
        with self.engine.connect() as connection:
            check_commits_together(connection)
        self.store.create_table(self.engine)
        self._checked = True


def check_commits_together(connection: Connection) -> None:
    """`ConfigError` for an engine that commits every statement by itself."""
    dbapi_connection = connection.connection.dbapi_connection
    if dbapi_connection is None or connection.dialect.name == "sqlite":
        return  # SQLite is always told to begin.
    if connection.dialect.detect_autocommit_setting(dbapi_connection):
        raise ConfigError(
            "the engine has isolation_level AUTOCOMMIT: results and offsets could not be saved "
            "together. Give consumer.transaction() an engine with transactions"
        )
