"""Replay from dead-letter tables.

A chunk is sent in one Kafka transaction together with a record of the ledger that names its rows;
then the database is told that they were replayed. Whoever starts after a crash in between finds in
the ledger what the database does not know yet, and tells it first.

A record that several sinks could not read has a row for each: it is sent once, and all of its rows
are marked, in whichever database they are.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, cast

from sqlalchemy import Engine, Select, Table, and_, bindparam, inspect, select, update
from sqlalchemy.exc import DBAPIError

from penstock.spark.decode.dead_letters import DeadLetter
from penstock.spark.decode.replay import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    ReplayResult,
    Step,
    Targets,
    client_settings,
    count,
    replay_key,
)
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.sinks.database.dead_letters import headers_from_json
from penstock.spark.sinks.database.engines import open_engine
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.database.tables import dead_letter_table, split_name
from penstock.spark.sinks.topic.ledger import LedgerEntry
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions

if TYPE_CHECKING:
    from penstock.client.producer.producer import Producer

_LOCK_WAIT_S = 60.0


class Place(NamedTuple):
    """A partition that dead letters came from."""

    topic: str
    topic_id: str
    partition: int


def replay_table(
    spec: PipelineSpec,
    name: str,
    *,
    to: str | None,
    limit: int | None,
    dry_run: bool,
    step: Step,
) -> ReplayResult:
    tables = _Tables(spec, name)
    try:
        if dry_run:
            return _look(tables, to, limit)
        transactions = Transactions(client_settings(spec), replay_key(spec))
        try:
            entry = transactions.open() or LedgerEntry(None)
            if entry.fingerprint:
                tables.mark(*_sent_before(entry.fingerprint))
            targets = Targets(client_settings(spec), to)
            return _send(tables, transactions, entry, targets, to, limit, step)
        finally:
            transactions.close()
    except DBAPIError as error:
        raise PipelineError(
            f"the dead letters of {spec.name} could not be read or marked: {error.orig}. Start "
            "again: what was sent is known, and is not sent twice"
        ) from error
    finally:
        tables.close()


def _send(
    tables: "_Tables",
    transactions: Transactions,
    entry: LedgerEntry,
    targets: Targets,
    to: str | None,
    limit: int | None,
    step: Step,
) -> ReplayResult:
    result = ReplayResult()
    for place, waiting in tables.waiting().items():
        replayed = tables.replayed(place)
        repeated = [offset for offset in waiting if offset in replayed]
        result.repeated += tables.mark(place, repeated)
        fresh = [offset for offset in waiting if offset not in replayed]
        if limit is not None:
            fresh = fresh[: limit - result.replayed]
        for chunk in tables.chunks(place, fresh):
            targets.check(chunk)
            offsets = [each.offset for each in chunk]
            named = json.dumps([*place, offsets], separators=(",", ":"))

            def work(
                producer: "Producer", check_deadline: CheckDeadline, chunk: list[DeadLetter] = chunk
            ) -> None:
                targets.send(producer, chunk)
                step("sent")
                check_deadline()

            transactions.run(
                work,
                {transactions.key: LedgerEntry(entry.stored, rows=len(chunk), fingerprint=named)},
            )
            step("committed")
            result.repeated += tables.mark(place, offsets) - len(offsets)
            step("marked")
            count(result, chunk, to)
    return result


def _look(tables: "_Tables", to: str | None, limit: int | None) -> ReplayResult:
    result = ReplayResult(is_dry_run=True)
    for place, waiting in tables.waiting().items():
        replayed = tables.replayed(place)
        fresh = [offset for offset in waiting if offset not in replayed]
        result.repeated += len(waiting) - len(fresh)
        if limit is not None:
            fresh = fresh[: limit - result.replayed]
        for chunk in tables.chunks(place, fresh):
            count(result, chunk, to)
    return result


def _sent_before(named: str) -> tuple[Place, list[int]]:
    topic, topic_id, partition, offsets = json.loads(named)
    return Place(topic, topic_id, partition), offsets


class _Tables:
    """The tables of all databases that sinks of the pipeline write to, as if they were one."""

    def __init__(self, spec: PipelineSpec, name: str) -> None:
        self._pipeline = spec.name
        schema, table = split_name(name)
        self._table: Table = dead_letter_table(table, schema)
        sinks = [each for each in spec.sinks if isinstance(each, DatabaseSinkSpec)]
        self._keys = [spec.query(each) for each in sinks]
        self._engines: list[Engine] = []
        for address in dict.fromkeys(each.database for each in sinks):
            self._engines.append(open_engine(address, _LOCK_WAIT_S))
        if not self._engines:
            raise PipelineError(
                f"pipeline {spec.name} keeps its dead letters in table {name}, and has no sink "
                "with a database to look for it"
            )
        self._here = [each for each in self._engines if inspect(each).has_table(table, schema)]

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()

    def waiting(self) -> dict[Place, list[int]]:
        """Offsets that are to be replayed as of now, in order."""
        columns = self._table.c
        found: dict[Place, set[int]] = {}
        asked = self._ours(
            select(columns.topic, columns.topic_id, columns.partition, columns.offset)
        ).where(columns.replayed_at.is_(None))
        for engine in self._here:
            with engine.connect() as connection:
                for row in connection.execute(asked).mappings():
                    place = Place(row["topic"], row["topic_id"], row["partition"])
                    found.setdefault(place, set()).add(row["offset"])
        return {place: sorted(found[place]) for place in sorted(found)}

    def replayed(self, place: Place) -> set[int]:
        """Offsets that were replayed."""
        columns = self._table.c
        asked = self._at(place, self._ours(select(columns.offset))).where(
            columns.replayed_at.is_not(None)
        )
        found: set[int] = set()
        for engine in self._here:
            with engine.connect() as connection:
                found.update(row["offset"] for row in connection.execute(asked).mappings())
        return found

    def chunks(self, place: Place, offsets: Sequence[int]) -> Iterator[list[DeadLetter]]:
        """The dead letters at these offsets, one of each, few enough for one transaction."""
        chunk: list[DeadLetter] = []
        size = 0
        for begin in range(0, len(offsets), CHUNK_RECORDS):
            for letter in self._letters(place, offsets[begin : begin + CHUNK_RECORDS]):
                more = len(letter.value or b"") + len(letter.key or b"")
                if chunk and (len(chunk) >= CHUNK_RECORDS or size + more > CHUNK_BYTES):
                    yield chunk
                    chunk, size = [], 0
                chunk.append(letter)
                size += more
        if chunk:
            yield chunk

    def mark(self, place: Place, offsets: Collection[int]) -> int:
        """All rows of these records were replayed; how many rows that were."""
        if not offsets:
            return 0
        columns = self._table.c
        change = (
            update(self._table)
            .where(
                and_(
                    columns.pipeline.in_(self._keys),
                    columns.topic == place.topic,
                    columns.topic_id == place.topic_id,
                    columns.partition == place.partition,
                    columns.offset == bindparam("at_offset"),
                    columns.replayed_at.is_(None),
                )
            )
            .values(replayed_at=datetime.now(UTC))
        )
        marked = 0
        for engine in self._here:
            with engine.begin() as connection:
                for offset in offsets:
                    marked += connection.execute(change, {"at_offset": offset}).rowcount
        return marked

    def _letters(self, place: Place, offsets: Sequence[int]) -> list[DeadLetter]:
        columns = self._table.c
        asked = self._at(place, self._ours(select(self._table))).where(columns.offset.in_(offsets))
        found: dict[int, DeadLetter] = {}
        for engine in self._here:
            with engine.connect() as connection:
                for row in connection.execute(asked).mappings():
                    headers = headers_from_json(row["headers"]) or []
                    time: datetime | None = row["timestamp"]
                    if time is not None and time.tzinfo is None:
                        time = time.replace(tzinfo=UTC)
                    found[row["offset"]] = DeadLetter(
                        source=row["source"],
                        **place._asdict(),
                        offset=row["offset"],
                        timestamp=time,
                        key=row["key"],
                        value=row["value"],
                        headers=[
                            (str(each["key"]), cast("bytes | None", each["value"]))
                            for each in headers
                        ],
                        reason=row["reason"],
                        pipeline=self._pipeline,
                    )
        return [found[offset] for offset in sorted(found)]

    def _ours(self, asked: Select[tuple[object, ...]]) -> Select[tuple[object, ...]]:
        return asked.where(self._table.c.pipeline.in_(self._keys))

    def _at(self, place: Place, asked: Select[tuple[object, ...]]) -> Select[tuple[object, ...]]:
        columns = self._table.c
        return asked.where(
            columns.topic == place.topic,
            columns.topic_id == place.topic_id,
            columns.partition == place.partition,
        )
