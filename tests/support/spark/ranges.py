"""Reads ranges of a topic as Spark's executors do."""

from typing import NamedTuple

import pyarrow as pa

from penstock.client import Admin, Consumer
from penstock.core.ids import TopicPartition
from penstock.spark.source.range_reader import ReadSettings, read_range
from penstock.spark.source.ranges import OffsetRange
from penstock.spark.source.topic_ids import to_text


class Row(NamedTuple):
    """A row of Spark's Kafka source, with its timestamp in microseconds."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None = None


def rows_of(batches: "list[pa.RecordBatch]") -> list[Row]:
    result: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        columns = [
            column.cast(pa.int64()) if field.name == "timestamp" else column
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            fields = list(row)
            if len(fields) == 8:
                fields[7] = tuple((field["key"], field["value"]) for field in fields[7] or ())
            result.append(Row(*fields))
    return result


def settings(
    bootstrap: str,
    *,
    read_committed: bool = False,
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    poll_timeout_ms: int = 30_000,
    **client: str,
) -> ReadSettings:
    """Returns the settings; `client` has Kafka's names with `_` instead of dots."""
    level = "read_committed" if read_committed else "read_uncommitted"
    properties = {"bootstrap.servers": bootstrap, "isolation.level": level}
    properties |= {name.replace("_", "."): value for name, value in client.items()}
    return ReadSettings(properties, include_headers, fail_on_data_loss, poll_timeout_ms)


def read(offset_range: OffsetRange, read_settings: ReadSettings) -> list[Row]:
    return rows_of(list(read_range(offset_range, read_settings)))


def range_of(admin: Admin, topic: str, start: int, end: int, partition: int = 0) -> OffsetRange:
    """Returns a range with the current id of the topic."""
    topic_id = admin.describe_topics([topic])[topic].topic_id
    return OffsetRange(topic, partition, start, end, to_text(topic_id))


def polled(consumer: Consumer, topic: str, end: int) -> list[Row]:
    """Returns all records that a consumer reads from partition 0 below `end`."""
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    result: list[Row] = []
    while consumer.position(partition) < end:
        for record in consumer.poll(0.1):
            result.append(
                Row(
                    record.key,
                    record.value,
                    record.topic,
                    record.partition,
                    record.offset,
                    1000 * record.timestamp,
                    int(record.timestamp_type),
                    tuple(record.headers),
                )
            )
    return [row for row in result if row.offset < end]
