"""The table of offsets in a relational database, next to the results that they belong to.

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
from penstock.client.external_offsets.model import OffsetsMovedError, OffsetUpdate, StoredOffset
from penstock.core.ids import TopicPartition

DEFAULT_TABLE: Final = "penstock_offsets"
MAX_GROUP_LENGTH: Final = 255
MAX_TOPIC_LENGTH: Final = 249

_SERIALIZATION_FAILURE: Final = "40001"
_CHANGED_SINCE_LAST_READ: Final = 1020
"""MariaDB's error with innodb_snapshot_isolation: the row is newer than the snapshot."""

_DEADLOCK: Final = 1213
"""MySQL's error for a deadlock, with the SQLSTATE of a serialization failure."""

_TOPICS_PER_QUERY: Final = 200
"""Databases limit the number of parameters and the depth of a statement."""


def _name(length: int) -> String:
    # Names in Kafka are case-sensitive; in MySQL only with such a collation.
    exact = mysql.VARCHAR(length, collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


class OffsetStore:
    """Offsets by group, topic and partition, for SQLite, PostgreSQL, MySQL and MariaDB.

    `save` updates an offset only if it still has the version that the caller has read: of two
    consumers that both act as the owner of a partition, one gets `OffsetsMovedError`.
    """

    def __init__(
        self,
        table_name: str = DEFAULT_TABLE,
        *,
        schema: str | None = None,
        metadata: MetaData | None = None,
    ) -> None:
        """`metadata` adds the table to yours, for `create_all` and migrations."""
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
            # MyISAM has no transactions.
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
        """Creates the table if it does not exist. In MySQL this commits an open transaction."""
        if self.exists(bind):
            return
        try:
            self.table.create(bind, checkfirst=False)
        except DBAPIError:
            # Another process may have created it at the same time.
            if isinstance(bind, Connection) or not self.exists(bind):
                raise

    def exists(self, bind: Engine | Connection) -> bool:
        """Returns whether the table exists."""
        return inspect(bind).has_table(self.table.name, schema=self.table.schema)

    def read(
        self,
        connection: Connection,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[TopicPartition, StoredOffset]:
        """Returns the stored offsets of these partitions, or of the whole group."""
        columns = self.table.c
        of_group = select(self.table).where(columns.group_id == group_id)
        if partitions is None:
            return dict(map(_stored, connection.execute(of_group).mappings()))
        offsets: dict[TopicPartition, StoredOffset] = {}
        numbers_of: dict[str, list[int]] = {}
        for topic, number in partitions:
            numbers_of.setdefault(topic, []).append(number)
        names = list(numbers_of)
        for start in range(0, len(names), _TOPICS_PER_QUERY):
            condition = or_(
                *(
                    and_(
                        columns.topic == topic,
                        columns.partition.between(min(numbers_of[topic]), max(numbers_of[topic])),
                    )
                    for topic in names[start : start + _TOPICS_PER_QUERY]
                )
            )
            rows = connection.execute(of_group.where(condition)).mappings()
            offsets.update(map(_stored, rows))
        return {partition: offsets[partition] for partition in partitions if partition in offsets}

    def add(
        self,
        connection: Connection,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Stores the offsets of partitions that have none; does not change the others.

        Read the stored offsets in a new transaction: this one may not see all of them.
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
        self, connection: Connection, group_id: str, updates: Mapping[TopicPartition, OffsetUpdate]
    ) -> None:
        """Updates all of these offsets.

        Raises OffsetsMovedError if one of them has changed since it was read: roll back then.
        """
        if not updates:
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
        # Always in the same order, so that two transactions cannot deadlock.
        rows: list[dict[str, object]] = [
            {
                "in_group": group_id,
                "in_topic": partition.topic,
                "in_partition": partition.partition,
                "from_offset": update.previous.position.offset,
                "from_version": update.previous.version,
                "to_offset": update.position.offset,
                "to_leader_epoch": update.position.leader_epoch,
                "to_metadata": update.position.metadata,
                "to_version": update.previous.version + 1,
            }
            for partition, update in sorted(updates.items())
        ]
        try:
            updated_rows = connection.execute(statement, rows).rowcount
        except DBAPIError as error:
            if _is_newer_than_snapshot(error):
                raise self._moved_error(group_id, updates) from error
            raise
        if updated_rows != len(rows):
            raise self._moved_error(group_id, updates)

    def put(
        self,
        connection: Connection,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Stores these offsets unconditionally: to start somewhere else, or to rewind.

        Running consumers of these partitions get `OffsetsMovedError` and continue from here. Change
        the results in the same transaction.
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
        """Deletes the offsets of these partitions, or of the whole group: they start anew."""
        begin(connection)
        if partitions is None:
            connection.execute(delete(self.table).where(self.table.c.group_id == group_id))
            return
        for topic, number in sorted(partitions):
            connection.execute(
                delete(self.table).where(self._this_partition),
                {"in_group": group_id, "in_topic": topic, "in_partition": number},
            )

    def _moved_error(
        self, group_id: str, updates: Mapping[TopicPartition, OffsetUpdate]
    ) -> OffsetsMovedError:
        partitions = ", ".join(map(str, sorted(updates)[:5]))
        more = f" and {len(updates) - 5} more" if len(updates) > 5 else ""
        return OffsetsMovedError(
            f"the offsets of group {group_id!r} in the table {self.table.fullname} were changed "
            f"after this consumer had read them ({partitions}{more}): another consumer owns the "
            "partitions now, or still did. This transaction is rolled back; poll again to continue "
            "from the stored offsets"
        )


def begin(connection: Connection) -> None:
    """Begins a write transaction in SQLite; other databases have begun theirs already.

    Python's sqlite3 begins it with the first change only, so that rows that were read before could
    be outdated, and a transaction that has begun to read cannot always continue to write.
    """
    if connection.dialect.name != "sqlite":
        return
    driver_connection = connection.connection.driver_connection
    if driver_connection is not None and not driver_connection.in_transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def check_group_id(group_id: str) -> None:
    """Raises ConfigError for a name that the table cannot store unchanged."""
    if not group_id or len(group_id) > MAX_GROUP_LENGTH or group_id != group_id.rstrip(" "):
        raise ConfigError(
            f"offsets cannot be stored under the group_id {group_id!r}: it must have 1 to "
            f"{MAX_GROUP_LENGTH} characters and not end with a space"
        )


def refuse_autocommit(connection: Connection) -> None:
    """Raises ConfigError for an engine that commits every statement on its own."""
    dbapi_connection = connection.connection.dbapi_connection
    if dbapi_connection is None or connection.dialect.name == "sqlite":
        return  # `begin` begins the transactions of SQLite.
    if connection.dialect.detect_autocommit_setting(dbapi_connection):
        raise ConfigError(
            "the engine has isolation_level AUTOCOMMIT, so that results and offsets could not be "
            "saved together",
            remedy="give consumer.transaction() an engine with transactions",
        )


def _stored(row: RowMapping) -> tuple[TopicPartition, StoredOffset]:
    position = OffsetAndMetadata(row["next_offset"], row["metadata"], row["leader_epoch"])
    return TopicPartition(row["topic"], row["partition"]), StoredOffset(position, row["version"])


def _is_newer_than_snapshot(error: DBAPIError) -> bool:
    """Returns whether the row was changed after the transaction took its snapshot."""
    cause = error.orig
    code = cause.args[0] if cause is not None and cause.args else None
    if code == _CHANGED_SINCE_LAST_READ:
        return True
    return code != _DEADLOCK and getattr(cause, "sqlstate", None) == _SERIALIZATION_FAILURE
