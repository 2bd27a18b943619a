"""A table of offsets in a relational database, next to the results that they belong to.

All methods take the connection of the caller's transaction and never commit: offsets are stored
with the results or not at all.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, IntegrityError

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import ConfigError
from penstock.client.external_offsets.model import Move, OffsetsMovedError, StoredOffset
from penstock.core.ids import TopicPartition

DEFAULT_TABLE: Final = "penstock_offsets"
MAX_GROUP_LENGTH: Final = 255
MAX_TOPIC_LENGTH: Final = 249

_SERIALIZATION_FAILURE: Final = "40001"
_CHANGED_SINCE_LAST_READ: Final = 1020
"""MariaDB with innodb_snapshot_isolation: the row is newer than this transaction's snapshot."""

_DEADLOCK: Final = 1213
"""MySQL has the SQLSTATE of a serialization failure for this one too."""

_TOPICS_PER_QUERY: Final = 200
"""Databases limit the parameters and the depth of a statement."""


def _name(length: int) -> String:
    # Names in Kafka differ by case; in MySQL they do so only when told.
    exact = mysql.VARCHAR(length, collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


class OffsetStore:
    """Offsets by group, topic and partition, for SQLite, PostgreSQL, MySQL and MariaDB.

    `save` only moves an offset on from the version that the caller has read: of two consumers that
    both believe to own a partition one succeeds, and the other gets `OffsetsMovedError`.
    """

    def __init__(
        self,
        table_name: str = DEFAULT_TABLE,
        *,
        schema: str | None = None,
        metadata: MetaData | None = None,
    ) -> None:
        """`metadata` puts the table among yours, for `create_all` and migrations."""
        self.table = Table(
            table_name,
            metadata if metadata is not None else MetaData(),
            Column("group_id", _name(MAX_GROUP_LENGTH), primary_key=True),
            Column("topic", _name(MAX_TOPIC_LENGTH), primary_key=True),
            Column("partition", Integer, primary_key=True, autoincrement=False),
            Column("next_offset", BigInteger, nullable=False),
            Column("leader_epoch", Integer, nullable=False),
            Column("metadata", Text, nullable=False),
            Column("version", BigInteger, nullable=False),
            Column("updated_at", DateTime(timezone=True), nullable=False),
            schema=schema,
            # Without transactions there would be no point in it.
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
            mysql_charset="utf8mb4",
            mariadb_charset="utf8mb4",
        )
        columns = self.table.c
        self._this_partition = and_(
            columns.group_id == bindparam("in_group"),
            columns.topic == bindparam("in_topic"),
            columns.partition == bindparam("in_partition"),
        )
        self._write = update(self.table).where(self._this_partition)

    def __repr__(self) -> str:
        return f"OffsetStore({self.table.fullname!r})"

    def create_table(self, bind: Engine | Connection) -> None:
        """Creates the table if it is not there. In MySQL this commits an open transaction."""
        if self.exists(bind):
            return
        try:
            self.table.create(bind, checkfirst=False)
        except DBAPIError:
            # Another process has made it at the same time, or else this one may not.
            if isinstance(bind, Connection) or not self.exists(bind):
                raise

    def exists(self, bind: Engine | Connection) -> bool:
        """Whether the table is there."""
        return inspect(bind).has_table(self.table.name, schema=self.table.schema)

    def read(
        self,
        connection: Connection,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[TopicPartition, StoredOffset]:
        """What is stored for these partitions, or for all of the group."""
        columns = self.table.c
        of_group = select(self.table).where(columns.group_id == group_id)
        if partitions is None:
            return dict(map(_stored, connection.execute(of_group).mappings()))
        found: dict[TopicPartition, StoredOffset] = {}
        numbers_of: dict[str, list[int]] = {}
        for topic, number in partitions:
            numbers_of.setdefault(topic, []).append(number)
        for some in _some_at_a_time(list(numbers_of), _TOPICS_PER_QUERY):
            wanted = or_(
                *(
                    and_(
                        columns.topic == topic,
                        columns.partition.between(min(numbers_of[topic]), max(numbers_of[topic])),
                    )
                    for topic in some
                )
            )
            found.update(map(_stored, connection.execute(of_group.where(wanted)).mappings()))
        return {each: found[each] for each in partitions if each in found}

    def add(
        self,
        connection: Connection,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Stores where to start in partitions that nothing is stored for; others stay as they are.

        What is stored then is for a new transaction to read: this one may not see all of it.
        """
        check_group_id(group_id)
        begin(connection)
        for partition, position in sorted(positions.items()):
            try:
                with connection.begin_nested():
                    connection.execute(
                        insert(self.table).values(
                            group_id=group_id,
                            topic=partition.topic,
                            partition=partition.partition,
                            next_offset=position.offset,
                            leader_epoch=position.leader_epoch,
                            metadata=position.metadata,
                            version=1,
                            updated_at=func.current_timestamp(),
                        )
                    )
            except IntegrityError:
                continue

    def save(
        self, connection: Connection, group_id: str, moves: Mapping[TopicPartition, Move]
    ) -> None:
        """Moves offsets on, all of them or none.

        `OffsetsMovedError` if one is not any more what its move starts from: roll back then.
        """
        if not moves:
            return
        begin(connection)
        statement = self._write.where(
            self.table.c.next_offset == bindparam("from_offset"),
            self.table.c.version == bindparam("from_version"),
        ).values(
            next_offset=bindparam("to_offset"),
            leader_epoch=bindparam("to_leader_epoch"),
            metadata=bindparam("to_metadata"),
            version=bindparam("to_version"),
            updated_at=func.current_timestamp(),
        )
        # Always in the same order, so that two savers cannot wait for each other.
        rows: list[dict[str, object]] = [
            {
                "in_group": group_id,
                "in_topic": partition.topic,
                "in_partition": partition.partition,
                "from_offset": move.start.position.offset,
                "from_version": move.start.version,
                "to_offset": move.end.offset,
                "to_leader_epoch": move.end.leader_epoch,
                "to_metadata": move.end.metadata,
                "to_version": move.start.version + 1,
            }
            for partition, move in sorted(moves.items())
        ]
        try:
            saved = connection.execute(statement, rows).rowcount
        except DBAPIError as error:
            if _is_newer_than_snapshot(error):
                raise self._moved(group_id, moves) from error
            raise
        if saved != len(rows):
            raise self._moved(group_id, moves)

    def put(
        self,
        connection: Connection,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Stores these offsets, whatever is there: to start somewhere else, or to rewind.

        Consumers that are at work on these partitions get `OffsetsMovedError` and read on from
        here. Change the results in the same transaction.
        """
        self.add(connection, group_id, positions)
        statement = self._write.values(
            next_offset=bindparam("to_offset"),
            leader_epoch=bindparam("to_leader_epoch"),
            metadata=bindparam("to_metadata"),
            version=self.table.c.version + 1,
            updated_at=func.current_timestamp(),
        )
        for partition, position in sorted(positions.items()):
            connection.execute(
                statement,
                {
                    "in_group": group_id,
                    "in_topic": partition.topic,
                    "in_partition": partition.partition,
                    "to_offset": position.offset,
                    "to_leader_epoch": position.leader_epoch,
                    "to_metadata": position.metadata,
                },
            )

    def delete(
        self,
        connection: Connection,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> None:
        """Forgets these partitions, or all of the group: they start anew."""
        begin(connection)
        if partitions is None:
            connection.execute(delete(self.table).where(self.table.c.group_id == group_id))
            return
        for topic, number in sorted(partitions):
            connection.execute(
                delete(self.table).where(self._this_partition),
                {"in_group": group_id, "in_topic": topic, "in_partition": number},
            )

    def _moved(self, group_id: str, moves: Mapping[TopicPartition, Move]) -> OffsetsMovedError:
        some = ", ".join(map(str, sorted(moves)[:5]))
        more = f" and {len(moves) - 5} more" if len(moves) > 5 else ""
        return OffsetsMovedError(
            f"the offsets of group {group_id!r} in the table {self.table.fullname} were moved by "
            f"somebody else after this consumer had read them ({some}{more}): another consumer has "
            "the partitions now, or had them still. This transaction is rolled back; go on polling "
            "to read on from what is stored"
        )


def begin(connection: Connection) -> None:
    """Makes SQLite begin the transaction, as one that writes, now; others have begun it already.

    Python's sqlite3 would begin it with the first change only, so that what was read before could
    be outdated. A transaction that has begun to read cannot always go on to write either.
    """
    if connection.dialect.name != "sqlite":
        return
    driver_connection = connection.connection.driver_connection
    if driver_connection is not None and not driver_connection.in_transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def check_group_id(group_id: str) -> None:
    """`ConfigError` for a name that the table cannot keep, or would keep as another."""
    if not group_id or len(group_id) > MAX_GROUP_LENGTH or group_id != group_id.rstrip(" "):
        raise ConfigError(
            f"offsets cannot be stored under the group_id {group_id!r}: it must have 1 to "
            f"{MAX_GROUP_LENGTH} characters and not end with a space"
        )


def _stored(row: RowMapping) -> tuple[TopicPartition, StoredOffset]:
    position = OffsetAndMetadata(row["next_offset"], row["metadata"], row["leader_epoch"])
    return TopicPartition(row["topic"], row["partition"]), StoredOffset(position, row["version"])


def _some_at_a_time(values: list[str], count: int) -> Iterable[list[str]]:
    return (values[start : start + count] for start in range(0, len(values), count))


def _is_newer_than_snapshot(error: DBAPIError) -> bool:
    """Whether another transaction has changed the row since this one took its snapshot."""
    cause = error.orig
    code = cause.args[0] if cause is not None and cause.args else None
    if code == _CHANGED_SINCE_LAST_READ:
        return True
    return code != _DEADLOCK and getattr(cause, "sqlstate", None) == _SERIALIZATION_FAILURE
