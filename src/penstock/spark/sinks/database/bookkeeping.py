"""Owner, offsets and batches of one query: what makes the results count once.

Every method works in the caller's transaction and never commits. All that change something come
after `lock`, which lets no other owner in before the transaction ends.
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

KEPT_BATCHES: Final = 100
"""How many batches can be looked up in penstock_batch, for each query."""

_Place = tuple[str, str, int]
"""Source, topic, partition."""

_Row = tuple[str, int]
"""Id of the topic, next offset."""


@dataclass(frozen=True)
class QueryOwner:
    epoch: int
    name: str
    since: str


def check_name(name: str, what: str) -> None:
    """`PipelineError` for a name that the tables cannot keep, or would keep as another."""
    if not name or len(name) > MAX_NAME or name != name.rstrip(" ") or "\0" in name:
        raise PipelineError(
            f"the {what} {name!r} must have 1 to {MAX_NAME} characters and not end with a space"
        )


class Bookkeeping:
    """`key` names the query: `<pipeline>.<sink>`."""

    def __init__(self, key: str) -> None:
        check_name(key, "name of the query")
        self._key = key
        self._mine = PIPELINE.c.pipeline == key

    def add(self, connection: Connection) -> None:
        """The query's row, if there is none. `IntegrityError` if another driver adds it too."""
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
        """Raise the epoch, and wait for the owner before us to end its transaction."""
        epoch = self._locked(connection).epoch + 1
        connection.execute(
            update(PIPELINE)
            .where(self._mine)
            .values(epoch=epoch, owner=owner[:255], since=func.current_timestamp())
        )
        # Batches of checkpoints that are no longer used.
        last = select(PIPELINE.c.query_id).where(self._mine).scalar_subquery()
        connection.execute(
            delete(BATCH).where(BATCH.c.pipeline == self._key, BATCH.c.query_id != last)
        )
        return epoch

    def peek(self, connection: Connection, *, lock: bool = False) -> QueryOwner | None:
        """The owner as far as it is committed; with `lock`, none comes after it before we end."""
        asked = select(PIPELINE.c.epoch, PIPELINE.c.owner, PIPELINE.c.since).where(self._mine)
        row = connection.execute(asked.with_for_update() if lock else asked).first()
        return None if row is None else QueryOwner(row[0], row[1], str(row[2]))

    def _locked(self, connection: Connection) -> QueryOwner:
        owner = self.peek(connection, lock=True)
        if owner is None:
            raise PipelineError(
                f"the row of {self._key!r} in penstock_pipeline is gone: somebody has removed it "
                "while the pipeline ran. Start the pipeline again"
            )
        return owner

    def lock(self, connection: Connection, epoch: int) -> None:
        """`FencedError` if the query has another owner. None can come until we are done."""
        owner = self._locked(connection)
        if owner.epoch != epoch:
            raise FencedError(
                f"{self._key!r} has been taken over by {owner.name!r} since {owner.since} (epoch "
                f"{owner.epoch}; this driver has {epoch}). This driver stops; what it has "
                "stored is counted there. Only one driver can run a pipeline: stop the other if "
                "this is the one that you want, and start this one again"
            )

    def read(self, connection: Connection) -> StoredProgress | None:
        """How far the query is; None if it has never begun."""
        query_id = connection.execute(select(PIPELINE.c.query_id).where(self._mine)).scalar()
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
            source: SourceOffsets(found, ids.get(source, {}), source)
            for source, found in offsets.items()
        }
        return StoredProgress(progress, query_id, -1 if batch_id is None else int(batch_id))

    def begin_at(self, connection: Connection, start: Progress, epoch: int) -> None:
        """The offsets before the first batch."""
        self._save_offsets(connection, start, -1, epoch)
        connection.execute(update(PIPELINE).where(self._mine).values(query_id=""))

    def advance(
        self,
        connection: Connection,
        batch: Batch,
        applied: WriteResult,
        epoch: int,
        before: StoredProgress,
    ) -> None:
        """The query is at the end of this batch."""
        self._save_offsets(connection, batch.end, batch.batch_id, epoch)
        ends = {source: offsets.to_json() for source, offsets in sorted(batch.end.items())}
        of_query = and_(BATCH.c.pipeline == self._key, BATCH.c.query_id == batch.query_id)
        if before.query_id != batch.query_id:
            # A checkpoint that was put back from a copy counts its batches a second time.
            connection.execute(delete(BATCH).where(of_query))
            connection.execute(update(PIPELINE).where(self._mine).values(query_id=batch.query_id))
        else:
            outdated = (BATCH.c.batch_id >= batch.batch_id) | (
                BATCH.c.batch_id <= batch.batch_id - KEPT_BATCHES
            )
            connection.execute(delete(BATCH).where(of_query, outdated))
        connection.execute(
            insert(BATCH).values(
                pipeline=self._key,
                query_id=batch.query_id,
                batch_id=batch.batch_id,
                epoch=epoch,
                end_offsets=json.dumps(ends, separators=(",", ":")),
                rows=applied.rows,
                dead_letters=applied.dead_letters,
                at=func.current_timestamp(),
            )
        )

    def applied(self, connection: Connection, batch: Batch) -> WriteResult:
        """What a batch has stored; nothing if it is not known any more."""
        row = connection.execute(
            select(BATCH.c.rows, BATCH.c.dead_letters)
            .where(BATCH.c.pipeline == self._key, BATCH.c.query_id == batch.query_id)
            .where(BATCH.c.batch_id == batch.batch_id)
        ).first()
        return WriteResult(row[0], row[1]) if row is not None else WriteResult(0)

    def clear(self, connection: Connection) -> None:
        """The query has never run; its owner stays."""
        connection.execute(delete(OFFSET).where(OFFSET.c.pipeline == self._key))
        connection.execute(delete(BATCH).where(BATCH.c.pipeline == self._key))
        connection.execute(update(PIPELINE).where(self._mine).values(query_id=None))

    def _offsets(self, connection: Connection) -> dict[_Place, _Row]:
        columns = OFFSET.c
        asked = select(
            columns.source, columns.topic, columns.part, columns.topic_id, columns.next_offset
        ).where(columns.pipeline == self._key)
        return {(row[0], row[1], row[2]): (row[3], row[4]) for row in connection.execute(asked)}

    def _save_offsets(
        self, connection: Connection, progress: Progress, batch_id: int, epoch: int
    ) -> None:
        """Exactly these, and in the least number of statements."""
        there = self._offsets(connection)
        wanted = _flat(progress)
        columns = OFFSET.c
        this = and_(
            columns.pipeline == self._key,
            columns.source == bindparam("in_source"),
            columns.topic == bindparam("in_topic"),
            columns.part == bindparam("in_part"),
        )
        gone = [_named(place) for place in sorted(there.keys() - wanted.keys())]
        if gone:
            connection.execute(delete(OFFSET).where(this), gone)
        moved = [
            {**_named(place), "to_id": row[0], "to_offset": row[1]}
            for place, row in sorted(wanted.items())
            if place in there and there[place] != row
        ]
        if moved:
            change = update(OFFSET).values(
                topic_id=bindparam("to_id"),
                next_offset=bindparam("to_offset"),
                batch_id=batch_id,
                epoch=epoch,
            )
            connection.execute(change.where(this), moved)
        new: Sequence[Mapping[str, object]] = [
            {
                "pipeline": self._key,
                "source": place[0],
                "topic": place[1],
                "part": place[2],
                "topic_id": row[0],
                "next_offset": row[1],
                "batch_id": batch_id,
                "epoch": epoch,
            }
            for place, row in sorted(wanted.items())
            if place not in there
        ]
        if new:
            connection.execute(insert(OFFSET), new)


def _flat(progress: Progress) -> dict[_Place, _Row]:
    found: dict[_Place, _Row] = {}
    for source, offsets in progress.items():
        check_name(source, "name of the source")
        for (topic, part), offset in offsets.offsets.items():
            found[source, topic, part] = (offsets.topic_ids.get(topic, ""), offset)
    return found


def _named(place: _Place) -> dict[str, object]:
    return {"in_source": place[0], "in_topic": place[1], "in_part": place[2]}
