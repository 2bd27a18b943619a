"""Records that could not be read (D5): as a table, and as the records of a dead-letter topic.

In a topic they keep their key, value and headers, and get headers that tell where they came from.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow as pa

from penstock.spark.pipeline.model import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.client.consumer.record import ConsumerRecord

SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("reason", pa.string()),
    ]
)

PREFIX = "penstock.dlq."
PIPELINE = PREFIX + "pipeline"
SOURCE = PREFIX + "source"
TOPIC = PREFIX + "topic"
TOPIC_ID = PREFIX + "topic-id"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
TIMESTAMP = PREFIX + "timestamp"
REASON = PREFIX + "reason"

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be read, and where it came from."""

    source: str
    topic: str
    topic_id: str
    """Empty where the broker has no ids."""
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Its own."""
    reason: str
    pipeline: str = ""

    @property
    def origin(self) -> "Origin":
        return (self.topic, self.topic_id, self.partition, self.offset)


Origin: TypeAlias = tuple[str, str, int, int]
"""Topic, its id, partition, offset: the same for a record that several queries could not read."""


def dead_letters_of(
    raw: "DataFrame",
    source: SourceSpec,
    topic_ids: Mapping[str, str],
    *,
    at_most: int | None = None,
) -> pa.Table:
    """Those among the raw records of a source, with `SCHEMA`, in the order of their origin.

    Runs a job of its own, and holds what it finds in memory: `at_most` bounds that.
    """
    from pyspark.sql import functions as fn

    from penstock.spark.decode.decode import decode

    has_headers = "headers" in raw.columns
    kept = ("value", "headers") if has_headers else ("value",)
    bad = decode(raw, source, keep=kept).where(fn.col("_error").isNotNull())
    names = ["_topic", "_partition", "_offset", "_timestamp", "_key", "_error"]
    found = bad.select(*names, *(f"_raw_{name}" for name in kept))
    if at_most is not None:
        found = found.limit(at_most)
    table = found.toArrow()
    topics = table["_topic"].to_pylist()
    count = table.num_rows
    columns = {
        "source": pa.array([source.name] * count, pa.string()),
        "topic": table["_topic"],
        "topic_id": pa.array([topic_ids.get(each, "") for each in topics], pa.string()),
        "partition": table["_partition"],
        "offset": table["_offset"],
        "timestamp": table["_timestamp"],
        "key": table["_key"],
        "value": table["_raw_value"],
        "headers": table["_raw_headers"] if has_headers else pa.nulls(count),
        "reason": table["_error"],
    }
    made = pa.table([_cast(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
    return made.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])


def _cast(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_list(kind):
        # Arrow does not cast one struct to another whose fields are named otherwise.
        return pa.array(column.to_pylist(), kind)
    return column.cast(kind)


def to_records(
    table: pa.Table, pipeline: str
) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
    """Key, value and headers of each, to be sent to a dead-letter topic."""
    for letter in from_table(table):
        told = {
            PIPELINE: pipeline,
            SOURCE: letter.source,
            TOPIC: letter.topic,
            TOPIC_ID: letter.topic_id,
            PARTITION: str(letter.partition),
            OFFSET: str(letter.offset),
            TIMESTAMP: "" if letter.timestamp is None else _time_text(letter.timestamp),
            REASON: letter.reason,
        }
        headers = [
            *letter.headers,
            *((name, text.encode("utf-8", "replace")) for name, text in told.items() if text),
        ]
        yield letter.key, letter.value, headers


def from_table(table: pa.Table, pipeline: str = "") -> Iterator[DeadLetter]:
    for row in table.to_pylist():
        given = cast("list[dict[str, object]] | None", row["headers"])
        headers = [(str(each["key"]), cast("bytes | None", each["value"])) for each in given or ()]
        yield DeadLetter(
            source=row["source"],
            topic=row["topic"],
            topic_id=row["topic_id"] or "",
            partition=row["partition"],
            offset=row["offset"],
            timestamp=row["timestamp"],
            key=row["key"],
            value=row["value"],
            headers=headers,
            reason=row["reason"],
            pipeline=pipeline,
        )


def from_record(record: "ConsumerRecord") -> DeadLetter | None:
    """What `to_records` made it from; None if it is no dead letter.

    The last header of a name counts: a record that could not be read again has several.
    """
    told = {
        name: (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    try:
        time = told.get(TIMESTAMP)
        return DeadLetter(
            source=told[SOURCE],
            topic=told[TOPIC],
            topic_id=told.get(TOPIC_ID, ""),
            partition=int(told[PARTITION]),
            offset=int(told[OFFSET]),
            timestamp=datetime.fromisoformat(time) if time else None,
            key=record.key,
            value=record.value,
            headers=[each for each in record.headers if not each[0].startswith(PREFIX)],
            reason=told.get(REASON, ""),
            pipeline=told[PIPELINE],
        )
    except (KeyError, ValueError):
        return None


def _time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
