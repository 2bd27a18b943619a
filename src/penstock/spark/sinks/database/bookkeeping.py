"""Penstock's own tables in a database: owner, offsets and batches of one query.

All methods work in the caller's transaction and never commit. Methods that change rows must be
called after `lock`, which keeps other owners out until the transaction ends.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from penstock.core.ids import TopicPartition
from penstock.spark.errors import FencedError, PipelineError
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress
from penstock.spark.sinks.database.tables import BATCH, MAX_NAME, OFFSET, PIPELINE
from penstock.spark.sinks.port import WriteResult

MAX_BATCHES: Final = 100
"""The number of batches of each query that penstock_batch keeps."""

_Partition = tuple[str, str, int]
"""Source, topic, partition."""

_Row = tuple[str, int]
"""Topic id, next offset."""


@dataclass(frozen=True)
class QueryOwner:
    """The driver that owns a query."""

    epoch: int
    name: str
    since: str


def check_name(name: str, what: str) -> None:
    """Raises `PipelineError` for a name that the tables cannot store unchanged."""
    if not name or len(name) > MAX_NAME or name != name.rstrip(" ") or "\0" in name:
        raise PipelineError(
            f"the {what} {name!r} must have 1 to {MAX_NAME} characters and not end with a space"
        )


class Bookkeeping:
    """The rows of one query, named by its key `<pipeline>.<sink>`."""

    def __init__(self, key: str) -> None:
        check_name(key, "name of the query")
        self._key = key
        self._is_own_row = PIPELINE.c.pipeline == key

    def add(self, connection: Connection) -> None:
        """Adds the query's row if it is missing.

        Raises `IntegrityError` if another driver adds it concurrently.
        """
        if self.peek(connection) is None:
            connection.execute(
                insert(PIPELINE).values(
                    pipeline=self._key,
                    epoch=0,
                    owner="",
                    query_id=None,
                    since=func.current_timestamp(),
                )
            )

    def take_over(self, connection: Connection, owner: str) -> int:
        """Increments the epoch, after the previous owner's transaction has ended; returns it."""
        epoch = self._locked(connection).epoch + 1
        connection.execute(
            update(PIPELINE)
            .where(self._is_own_row)
            .values(epoch=epoch, owner=owner[:255], since=func.current_timestamp())
        )
        # Batches of checkpoints that are no longer used.
        last = select(PIPELINE.c.query_id).where(self._is_own_row).scalar_subquery()
        connection.execute(
            delete(BATCH).where(BATCH.c.pipeline == self._key, BATCH.c.query_id != last)
        )
        return epoch

    def peek(self, connection: Connection, *, lock: bool = False) -> QueryOwner | None:
        """Returns the committed owner; with `lock`, it cannot change in this transaction."""
        query = select(PIPELINE.c.epoch, PIPELINE.c.owner, PIPELINE.c.since).where(self._is_own_row)
        row = connection.execute(query.with_for_update() if lock else query).first()
        return None if row is None else QueryOwner(row[0], row[1], str(row[2]))

    def _locked(self, connection: Connection) -> QueryOwner:
        owner = self.peek(connection, lock=True)
        if owner is None:
            raise PipelineError(
                f"the row of {self._key!r} in penstock_pipeline was removed while the pipeline ran",
                remedy="start the pipeline again",
            )
        return owner

    def lock(self, connection: Connection, epoch: int) -> None:
        """Locks the query for this transaction; raises `FencedError` if it has another owner."""
        owner = self._locked(connection)
        if owner.epoch != epoch:
            raise FencedError(
                f"{self._key!r} has been taken over by {owner.name!r} since {owner.since} (epoch "
                f"{owner.epoch}; this driver has {epoch}). This driver stops; the other one "
                "continues from what it has stored. Only one driver can run a pipeline: to use "
                "this one, stop the other and start this one again"
            )

    def read(self, connection: Connection) -> StoredProgress | None:
        """Returns the progress of the query; None if it has never begun."""
        query_id = connection.execute(select(PIPELINE.c.query_id).where(self._is_own_row)).scalar()
        if query_id is None:
            return None
        last = (
            select(func.max(BATCH.c.batch_id))
            .where(BATCH.c.pipeline == self._key)
            .where(BATCH.c.query_id == query_id)
        )
        batch_id = connection.execute(last).scalar() if query_id else None
        offsets: dict[str, dict[TopicPartition, int]] = {}
        ids: dict[str, dict[str, str]] = {}
        for (source, topic, part), (topic_id, offset) in self._offsets(connection).items():
            offsets.setdefault(source, {})[TopicPartition(topic, part)] = offset
            if topic_id:
                ids.setdefault(source, {})[topic] = topic_id
        progress = {
            source: SourceOffsets(by_partition, ids.get(source, {}), source)
            for source, by_partition in offsets.items()
        }
        return StoredProgress(progress, query_id, -1 if batch_id is None else int(batch_id))

    def begin_at(self, connection: Connection, start: Progress, epoch: int) -> None:
        """Stores the offsets at which the first batch starts."""
        self._save_offsets(connection, start, -1, epoch)
        connection.execute(update(PIPELINE).where(self._is_own_row).values(query_id=""))

    def advance(
        self,
        connection: Connection,
        batch: Batch,
        result: WriteResult,
        epoch: int,
        before: StoredProgress,
    ) -> None:
        """Stores the end of a batch as the progress of the query."""
        self._save_offsets(connection, batch.end, batch.batch_id, epoch)
        ends = {source: offsets.to_json() for source, offsets in sorted(batch.end.items())}
        of_query = and_(BATCH.c.pipeline == self._key, BATCH.c.query_id == batch.query_id)
        if before.query_id != batch.query_id:
            # A checkpoint that was restored from a copy repeats the numbers of its batches.
            connection.execute(delete(BATCH).where(of_query))
            connection.execute(
                update(PIPELINE).where(self._is_own_row).values(query_id=batch.query_id)
            )
        else:
            outdated = (BATCH.c.batch_id >= batch.batch_id) | (
                BATCH.c.batch_id <= batch.batch_id - MAX_BATCHES
            )
            connection.execute(delete(BATCH).where(of_query, outdated))
        connection.execute(
            insert(BATCH).values(
                pipeline=self._key,
                query_id=batch.query_id,
                batch_id=batch.batch_id,
                epoch=epoch,
                end_offsets=json.dumps(ends, separators=(",", ":")),
                rows=result.rows,
                dead_letters=result.dead_letters,
                at=func.current_timestamp(),
            )
        )

    def result_of(self, connection: Connection, batch: Batch) -> WriteResult:
        """Returns what a batch has stored; zero rows if that is no longer known."""
        row = connection.execute(
            select(BATCH.c.rows, BATCH.c.dead_letters)
            .where(BATCH.c.pipeline == self._key, BATCH.c.query_id == batch.query_id)
            .where(BATCH.c.batch_id == batch.batch_id)
        ).first()
        return WriteResult(row[0], row[1]) if row is not None else WriteResult(0)

    def clear(self, connection: Connection) -> None:
        """Removes the progress of the query; its owner stays."""
        connection.execute(delete(OFFSET).where(OFFSET.c.pipeline == self._key))
        connection.execute(delete(BATCH).where(BATCH.c.pipeline == self._key))
        connection.execute(update(PIPELINE).where(self._is_own_row).values(query_id=None))

    def _offsets(self, connection: Connection) -> dict[_Partition, _Row]:
        columns = OFFSET.c
        query = select(
            columns.source, columns.topic, columns.part, columns.topic_id, columns.next_offset
        ).where(columns.pipeline == self._key)
        return {(row[0], row[1], row[2]): (row[3], row[4]) for row in connection.execute(query)}

    def _save_offsets(
        self, connection: Connection, progress: Progress, batch_id: int, epoch: int
    ) -> None:
        """Replaces the stored offsets by these, with as few statements as possible."""
        stored = self._offsets(connection)
        expected = _flat(progress)
        columns = OFFSET.c
        this_partition = and_(
            columns.pipeline == self._key,
            columns.source == bindparam("in_source"),
            columns.topic == bindparam("in_topic"),
            columns.part == bindparam("in_part"),
        )
        removed = [_bind(partition) for partition in sorted(stored.keys() - expected.keys())]
        if removed:
            connection.execute(delete(OFFSET).where(this_partition), removed)
        changed = [
            {**_bind(partition), "to_id": row[0], "to_offset": row[1]}
            for partition, row in sorted(expected.items())
            if partition in stored and stored[partition] != row
        ]
        if changed:
            change = update(OFFSET).values(
                topic_id=bindparam("to_id"),
                next_offset=bindparam("to_offset"),
                batch_id=batch_id,
                epoch=epoch,
            )
            connection.execute(change.where(this_partition), changed)
        new: Sequence[Mapping[str, object]] = [
            {
                "pipeline": self._key,
                "source": partition[0],
                "topic": partition[1],
                "part": partition[2],
                "topic_id": row[0],
                "next_offset": row[1],
                "batch_id": batch_id,
                "epoch": epoch,
            }
            for partition, row in sorted(expected.items())
            if partition not in stored
        ]
        if new:
            connection.execute(insert(OFFSET), new)


def _flat(progress: Progress) -> dict[_Partition, _Row]:
    rows: dict[_Partition, _Row] = {}
    for source, offsets in progress.items():
        check_name(source, "name of the source")
        for (topic, part), offset in offsets.offsets.items():
            rows[source, topic, part] = (offsets.topic_ids.get(topic, ""), offset)
    return rows


def _bind(partition: _Partition) -> dict[str, object]:
    return {"in_source": partition[0], "in_topic": partition[1], "in_part": partition[2]}
