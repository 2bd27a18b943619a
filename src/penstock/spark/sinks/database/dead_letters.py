"""The table of dead letters: unreadable records with their origin and the reason.

They are written in the same transaction as the results of their batch. A record that is read again
(`replay-dlq`) and is still unreadable replaces its row.
"""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Engine, Table, delete

from penstock.spark.sinks.database.engines import database_kind, needs_merge
from penstock.spark.sinks.database.names import checked_table_name
from penstock.spark.sinks.database.statements import Target
from penstock.spark.sinks.database.tables import create_missing, dead_letter_table
from penstock.spark.sinks.database.writers import RowWriter, writer_for
from penstock.spark.sinks.topic.dead_letters import in_years

_KEY: Final = ("pipeline", "source", "topic", "topic_id", "partition", "offset")


class DeadLetterTable:
    """The dead letters of one query, in a table that queries may share."""

    def __init__(self, engine: Engine, name: str, key: str) -> None:
        self.name = name
        self._engine = engine
        self._kind = database_kind(engine)
        schema, table = checked_table_name(self._kind, name)
        self._key = key
        self._table: Table = dead_letter_table(table, schema)
        self._writer: RowWriter = writer_for(self._kind)
        self._target = Target(self._kind, schema, table, tuple(self._table.columns.keys()), _KEY)

    def create(self) -> None:
        """Creates the table if it is missing. Must be called before `write`."""
        create_missing(self._engine, [self._table])
        self._target = replace(self._target, merge=needs_merge(self._engine))

    def write(self, connection: Connection, letters: pa.Table) -> None:
        """Writes dead letters that have the schema `penstock.spark.decode.dead_letters.SCHEMA`."""
        if not letters.num_rows:
            return
        now = datetime.now(UTC)
        count = letters.num_rows
        columns = {
            "pipeline": pa.array([self._key] * count, pa.string()),
            **{name: letters[name] for name in ("source", "topic", "partition", "offset")},
            # Brokers before Kafka 2.8 have no ids.
            "topic_id": pc.fill_null(letters["topic_id"], ""),
            "timestamp": in_years(letters["timestamp"].cast(pa.timestamp("us", "UTC"))),
            "key": letters["key"],
            "value": letters["value"],
            "headers": pa.array(map(headers_to_json, letters["headers"].to_pylist()), pa.string()),
            # A reason may quote the unreadable text, and PostgreSQL stores no NUL.
            "reason": pc.replace_substring(letters["reason"], "\0", "\N{REPLACEMENT CHARACTER}"),
            "at": pa.array([now] * count, pa.timestamp("us", "UTC")),
            "replayed_at": pa.nulls(count, pa.timestamp("us", "UTC")),
        }
        rows = pa.table({name: columns[name] for name in self._target.columns})
        self._writer.upsert(connection, self._target, rows)

    def clear(self, connection: Connection) -> None:
        """Deletes the dead letters of this query."""
        connection.execute(delete(self._table).where(self._table.c.pipeline == self._key))


def headers_to_json(headers: list[dict[str, object]] | None) -> str | None:
    """Returns `[{"key": …, "value": base64 or null}, …]`."""
    if headers is None:
        return None
    written = [
        {
            "key": header["key"],
            "value": base64.b64encode(header["value"]).decode()
            if isinstance(header["value"], bytes)
            else None,
        }
        for header in headers
    ]
    return json.dumps(written)


def headers_from_json(text: str | None) -> list[dict[str, object]] | None:
    """The inverse of `headers_to_json`."""
    if text is None:
        return None
    return [
        {
            "key": header["key"],
            "value": None if header["value"] is None else base64.b64decode(header["value"]),
        }
        for header in json.loads(text)
    ]
