"""Replaying dead-letter tables.

A chunk is sent in one Kafka transaction together with a ledger entry that names its rows; then the
rows are marked as replayed in the database. After a crash in between, the next replay finds the
entry and marks those rows first.

A record that several sinks could not read has a row for each of them. It is sent once, and all of
its rows are marked, in all databases.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Engine,
    RowMapping,
    Select,
    Table,
    bindparam,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from penstock.spark.decode.dead_letters import DeadLetter, from_row
from penstock.spark.decode.replay import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    ReplayOptions,
    ReplayResult,
    ReplayTargets,
    replay_key,
)
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.sinks.database.dead_letters import headers_from_json
from penstock.spark.sinks.database.engines import open_engine
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.database.names import split_name
from penstock.spark.sinks.database.tables import dead_letter_table
from penstock.spark.sinks.topic.ledger import LedgerEntry
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions

if TYPE_CHECKING:
    from penstock.client.producer.producer import Producer

_LOCK_WAIT_S = 60.0


class OriginPartition(NamedTuple):
    """A partition that dead letters came from."""

    topic: str
    topic_id: str
    partition: int


def replay_table(spec: PipelineSpec, name: str, options: ReplayOptions) -> ReplayResult:
    """Sends the dead letters of the table: see `replay`."""
    tables = _DeadLetterTables(spec, name)
    try:
        if options.dry_run:
            return _count(tables, options)
        transactions = Transactions(spec.client_settings, replay_key(spec))
        try:
            entry = transactions.open() or LedgerEntry(None)
            if entry.fingerprint:
                tables.mark(*_parse_fingerprint(entry.fingerprint))
            targets = ReplayTargets(spec.client_settings, options.to)
            return _send(tables, transactions, entry, targets, options)
        finally:
            transactions.close()
    except DBAPIError as error:
        raise PipelineError(
            f"the dead letters of {spec.name} could not be read or marked: {error.orig}",
            remedy="start the replay again: records that were sent are not sent twice",
        ) from error
    finally:
        tables.close()


def _send(
    tables: "_DeadLetterTables",
    transactions: Transactions,
    entry: LedgerEntry,
    targets: ReplayTargets,
    options: ReplayOptions,
) -> ReplayResult:
    result = ReplayResult()
    for origin, pending in tables.pending().items():
        replayed = tables.replayed(origin)
        result.repeated += tables.mark(origin, [o for o in pending if o in replayed])
        for chunk in _new_chunks(tables, origin, pending, replayed, options, result):
            targets.check(chunk)
            offsets = [letter.offset for letter in chunk]
            fingerprint = json.dumps([*origin, offsets], separators=(",", ":"))

            def work(
                producer: "Producer", check_deadline: CheckDeadline, chunk: list[DeadLetter] = chunk
            ) -> None:
                targets.send(producer, chunk)
                options.on_step("sent")
                check_deadline()

            chunk_entry = LedgerEntry(entry.stored, rows=len(chunk), fingerprint=fingerprint)
            transactions.run(work, {transactions.key: chunk_entry})
            options.on_step("committed")
            result.repeated += tables.mark(origin, offsets) - len(offsets)
            options.on_step("marked")
            result.count(chunk, options.to)
    return result


def _count(tables: "_DeadLetterTables", options: ReplayOptions) -> ReplayResult:
    """Counts what `_send` would send."""
    result = ReplayResult(is_dry_run=True)
    for origin, pending in tables.pending().items():
        replayed = tables.replayed(origin)
        result.repeated += len(replayed.intersection(pending))
        for chunk in _new_chunks(tables, origin, pending, replayed, options, result):
            result.count(chunk, options.to)
    return result


def _new_chunks(
    tables: "_DeadLetterTables",
    origin: OriginPartition,
    pending: list[int],
    replayed: set[int],
    options: ReplayOptions,
    result: ReplayResult,
) -> "Iterator[list[DeadLetter]]":
    """Returns the dead letters of one partition that were never sent, up to the limit."""
    offsets = [offset for offset in pending if offset not in replayed]
    if options.limit is not None:
        offsets = offsets[: options.limit - result.replayed]
    return tables.chunks(origin, offsets)


def _parse_fingerprint(fingerprint: str) -> tuple[OriginPartition, list[int]]:
    topic, topic_id, partition, offsets = json.loads(fingerprint)
    return OriginPartition(topic, topic_id, partition), offsets


class _DeadLetterTables:
    """The dead-letter tables of all databases that the pipeline's sinks write to, as one table."""

    def __init__(self, spec: PipelineSpec, name: str) -> None:
        self._pipeline = spec.name
        schema, table = split_name(name)
        self._table: Table = dead_letter_table(table, schema)
        sinks = [sink for sink in spec.sinks if isinstance(sink, DatabaseSinkSpec)]
        self._keys = [spec.query(sink) for sink in sinks]
        addresses = dict.fromkeys(sink.database for sink in sinks)
        self._all_engines = [open_engine(address, _LOCK_WAIT_S) for address in addresses]
        if not self._all_engines:
            raise PipelineError(
                f"pipeline {spec.name} stores its dead letters in table {name}, but it has no sink "
                "with a database that could contain it"
            )
        self._engines: list[Engine] = [
            engine for engine in self._all_engines if inspect(engine).has_table(table, schema)
        ]

    def close(self) -> None:
        for engine in self._all_engines:
            engine.dispose()

    def pending(self) -> dict[OriginPartition, list[int]]:
        """Returns the offsets that are not marked as replayed, in order."""
        columns = self._table.c
        query = (
            select(columns.topic, columns.topic_id, columns.partition, columns.offset)
            .where(columns.pipeline.in_(self._keys))
            .where(columns.replayed_at.is_(None))
        )
        offsets: dict[OriginPartition, set[int]] = {}
        for row in self._rows(query):
            origin = OriginPartition(row["topic"], row["topic_id"], row["partition"])
            offsets.setdefault(origin, set()).add(row["offset"])
        return {origin: sorted(offsets[origin]) for origin in sorted(offsets)}

    def replayed(self, origin: OriginPartition) -> set[int]:
        """Returns the offsets that are marked as replayed."""
        columns = self._table.c
        query = select(columns.offset).where(
            *self._conditions(origin), columns.replayed_at.is_not(None)
        )
        return {row["offset"] for row in self._rows(query)}

    def chunks(self, origin: OriginPartition, offsets: Sequence[int]) -> Iterator[list[DeadLetter]]:
        """Yields the dead letters at these offsets, as many as fit into a transaction."""
        chunk: list[DeadLetter] = []
        size = 0
        for begin in range(0, len(offsets), CHUNK_RECORDS):
            for letter in self._letters(origin, offsets[begin : begin + CHUNK_RECORDS]):
                letter_size = len(letter.value or b"") + len(letter.key or b"")
                if chunk and (len(chunk) >= CHUNK_RECORDS or size + letter_size > CHUNK_BYTES):
                    yield chunk
                    chunk, size = [], 0
                chunk.append(letter)
                size += letter_size
        if chunk:
            yield chunk

    def mark(self, origin: OriginPartition, offsets: Collection[int]) -> int:
        """Marks all rows of these records as replayed, and returns how many were not before."""
        if not offsets:
            return 0
        columns = self._table.c
        change = (
            update(self._table)
            .where(*self._conditions(origin))
            .where(columns.offset == bindparam("at_offset"), columns.replayed_at.is_(None))
            .values(replayed_at=datetime.now(UTC))
        )
        marked = 0
        for engine in self._engines:
            with engine.begin() as connection:
                for offset in offsets:
                    marked += connection.execute(change, {"at_offset": offset}).rowcount
        return marked

    def _letters(self, origin: OriginPartition, offsets: Sequence[int]) -> list[DeadLetter]:
        """Returns one dead letter for each offset, in order."""
        query = select(self._table).where(
            *self._conditions(origin), self._table.c.offset.in_(offsets)
        )
        letters: dict[int, DeadLetter] = {}
        for row in self._rows(query):
            letter = from_row(row, headers_from_json(row["headers"]), self._pipeline)
            time = letter.timestamp
            if time is not None and time.tzinfo is None:
                letter = replace(letter, timestamp=time.replace(tzinfo=UTC))
            letters[letter.offset] = letter
        return [letters[offset] for offset in sorted(letters)]

    def _rows(self, query: Select[tuple[object, ...]]) -> Iterator[RowMapping]:
        for engine in self._engines:
            with engine.connect() as connection:
                yield from connection.execute(query).mappings()

    def _conditions(self, origin: OriginPartition) -> list[ColumnElement[bool]]:
        """Returns the conditions for the pipeline's rows of a partition."""
        columns = self._table.c
        return [
            columns.pipeline.in_(self._keys),
            *(columns[name] == value for name, value in origin._asdict().items()),
        ]
