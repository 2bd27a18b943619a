"""Database sinks and batches for them, without Spark."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa
from sqlalchemy import URL, Engine, MetaData, Table, func, select

from penstock.core.ids import TopicPartition
from penstock.spark.decode.dead_letters import SCHEMA
from penstock.spark.progress import Batch, Progress, SourceOffsets, StoredProgress
from penstock.spark.sinks.database.kind import DatabaseSinkSpec, Mode
from penstock.spark.sinks.database.rows import DELETE_COLUMN
from penstock.spark.sinks.database.sink import DatabaseSink

KEY = "shop.totals"
TOPIC = TopicPartition("orders", 0)


def spec_for(
    url: URL | str,
    *,
    table: str = "results",
    mode: Mode = "append",
    key: Sequence[str] = (),
    order_by: Sequence[str] = (),
    delete_when: str | None = None,
    writing: Literal["driver", "staged"] = "driver",
    create_table: bool = True,
) -> DatabaseSinkSpec:
    address = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    return DatabaseSinkSpec(
        name="totals",
        view="totals",
        database=address,
        table=table,
        mode=mode,
        key=tuple(key),
        order_by=tuple(order_by),
        delete_when=delete_when,
        writing=writing,
        create_table=create_table,
    )


@contextmanager
def sink_for(
    spec: DatabaseSinkSpec,
    key: str = KEY,
    *,
    dead_letter_table: str | None = None,
    lock_wait_seconds: float = 20,
    patience_seconds: float = 20,
) -> Iterator[DatabaseSink]:
    """Yields a sink, which is closed at the end of the block."""
    sink = DatabaseSink(
        spec,
        key,
        dead_letter_table=dead_letter_table,
        lock_wait_seconds=lock_wait_seconds,
        patience_seconds=patience_seconds,
    )
    try:
        yield sink
    finally:
        sink.close()


def at(offset: int, *, topic_id: str = "id-1") -> Progress:
    """Returns the progress of one source with one partition."""
    return {"orders": SourceOffsets({TOPIC: offset}, {TOPIC.topic: topic_id}, "orders")}


def batch_of(number: int, size: int = 10, query_id: str = "q1") -> Batch:
    """Returns the batch of this number; all batches have `size` offsets."""
    return Batch(query_id, number, at(number * size), at((number + 1) * size))


def begin(sink: DatabaseSink, owner: str = "one") -> StoredProgress | None:
    """Opens the sink, and stores the start offsets if it has none."""
    stored = sink.open(owner)
    if stored is None:
        sink.begin_at(at(0))
    return stored


def with_deletes(rows: pa.Table, deletes: Sequence[bool]) -> pa.Table:
    return rows.append_column(DELETE_COLUMN, pa.array(deletes, pa.bool_()))


def rows_of(engine: Engine, table: str = "results") -> list[dict[str, object]]:
    """Returns all rows of a table, unordered."""
    result = Table(table, MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(select(result)).mappings()]


def count_of(engine: Engine, table: str) -> int:
    result = Table(table, MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(result)).scalar_one()


def by(rows: Sequence[Mapping[str, object]], column: str) -> dict[object, Mapping[str, object]]:
    """Returns rows by the unique values of a column."""
    result = {row[column]: row for row in rows}
    assert len(result) == len(rows)
    return result


def letters_at(*offsets: int, reason: str = "not JSON\0") -> pa.Table:
    rows: list[dict[str, object]] = [
        {
            "source": "orders",
            "topic": TOPIC.topic,
            "topic_id": "id-1",
            "partition": TOPIC.partition,
            "offset": offset,
            "timestamp": 1_700_000_000_000_000 + offset,
            "key": None,
            "value": b"\x00\xff{",
            "headers": [{"key": "h", "value": b"\x01"}, {"key": "n", "value": None}],
            "reason": reason,
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
