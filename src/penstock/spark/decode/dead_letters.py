"""Dead letters: records that could not be read, as an Arrow table and as records of a topic.

In a topic they keep their key, value and headers, and get more headers that state their origin.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

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
    """A record that could not be read, and its origin."""

    source: str
    topic: str
    topic_id: str
    """Empty if the broker has no topic ids."""
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Without those of the dead letter."""
    reason: str
    pipeline: str = ""

    @property
    def origin(self) -> "Origin":
        return (self.topic, self.topic_id, self.partition, self.offset)


Origin: TypeAlias = tuple[str, str, int, int]
"""Topic, topic id, partition and offset: they identify a record that several queries report."""


def dead_letters_of(
    raw: "DataFrame",
    source: SourceSpec,
    topic_ids: Mapping[str, str],
    *,
    at_most: int | None = None,
) -> pa.Table:
    """Returns the dead letters among raw records of a source, with `SCHEMA`, ordered by origin.

    Runs a Spark job, and holds the result in memory; `at_most` limits its rows.
    """
    from pyspark.sql import functions as fn

    from penstock.spark.decode.decode import decode

    has_headers = "headers" in raw.columns
    raw_names = ("value", "headers") if has_headers else ("value",)
    bad = decode(raw, source, keep=raw_names).where(fn.col("_error").isNotNull())
    names = ["_topic", "_partition", "_offset", "_timestamp", "_key", "_error"]
    bad = bad.select(*names, *(f"_raw_{name}" for name in raw_names))
    if at_most is not None:
        bad = bad.limit(at_most)
    table = bad.toArrow()
    topics = table["_topic"].to_pylist()
    count = table.num_rows
    columns = {
        "source": pa.array([source.name] * count, pa.string()),
        "topic": table["_topic"],
        "topic_id": pa.array([topic_ids.get(topic, "") for topic in topics], pa.string()),
        "partition": table["_partition"],
        "offset": table["_offset"],
        "timestamp": table["_timestamp"],
        "key": table["_key"],
        "value": table["_raw_value"],
        "headers": table["_raw_headers"] if has_headers else pa.nulls(count),
        "reason": table["_error"],
    }
    letters = pa.table([_cast(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
    return letters.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])


def _cast(
    column: pa.ChunkedArray | pa.Array, arrow_type: pa.DataType
) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_list(arrow_type):
        # Arrow does not cast a struct to one with other field names.
        return pa.array(column.to_pylist(), arrow_type)
    return column.cast(arrow_type)


def to_records(
    table: pa.Table, pipeline: str
) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
    """Yields key, value and headers of each dead letter, to be sent to a dead-letter topic."""
    for letter in from_table(table):
        dead_letter_headers = {
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
            *(
                (name, text.encode("utf-8", "replace"))
                for name, text in dead_letter_headers.items()
                if text
            ),
        ]
        yield letter.key, letter.value, headers


def from_table(table: pa.Table, pipeline: str = "") -> Iterator[DeadLetter]:
    """Yields the dead letters of a table with `SCHEMA`."""
    return (from_row(row, row["headers"], pipeline) for row in table.to_pylist())


def from_row(
    row: Mapping[Any, Any], headers: Iterable[Mapping[str, Any]] | None, pipeline: str
) -> DeadLetter:
    """Returns the dead letter of a row with the columns of `SCHEMA`."""
    names = ("source", "topic", "partition", "offset", "timestamp", "key", "value", "reason")
    return DeadLetter(
        **{name: row[name] for name in names},
        topic_id=row["topic_id"] or "",
        headers=[(str(header["key"]), header["value"]) for header in headers or ()],
        pipeline=pipeline,
    )


def from_record(record: "ConsumerRecord") -> DeadLetter | None:
    """Returns the dead letter that `to_records` made the record from; None if it is not one.

    The last header of a name counts: a replayed record that could not be read again has several.
    """
    texts = {
        name: (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    try:
        time = texts.get(TIMESTAMP)
        return DeadLetter(
            source=texts[SOURCE],
            topic=texts[TOPIC],
            topic_id=texts.get(TOPIC_ID, ""),
            partition=int(texts[PARTITION]),
            offset=int(texts[OFFSET]),
            timestamp=datetime.fromisoformat(time) if time else None,
            key=record.key,
            value=record.value,
            headers=[header for header in record.headers if not header[0].startswith(PREFIX)],
            reason=texts.get(REASON, ""),
            pipeline=texts[PIPELINE],
        )
    except (KeyError, ValueError):
        return None


def _time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
