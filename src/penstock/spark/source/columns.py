"""Records in the columns of Spark's Kafka source, as Arrow arrays.

The schema is what Spark expects of a Python data source to the letter: the Arrow form of the
source's own schema, with timestamps in microseconds UTC. What is the same for all rows of a
partition, its topic and its number, is made once and cut to the length of each batch.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS: Final = pa.list_(pa.field("element", _HEADER))
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS))

_LEAST_ROWS: Final = 4096
_MS: Final = pa.scalar(1000, pa.int64())
_LATEST_MS: Final = (2**63 - 1) // 1000


class SparkColumns:
    """Makes the batches of one partition."""

    def __init__(self, topic: str, partition: int, *, headers: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._schema = SCHEMA_WITH_HEADERS if headers else SCHEMA
        self._rows = 0
        self._topics: pa.Array = pa.array([], pa.string())
        self._partitions: pa.Array = pa.array([], pa.int32())
        self._types: dict[int, pa.Array] = {}

    def record_batch(
        self, records: pa.RecordBatch, timestamp_types: Sequence[tuple[int, int]]
    ) -> pa.RecordBatch:
        """`records` as an `ArrowDecoder` gives them, with what it says of their timestamps."""
        rows = records.num_rows
        if rows > self._rows:
            self._grow(max(rows, 2 * self._rows, _LEAST_ROWS))
        columns = [
            records.column("key"),
            records.column("value"),
            self._topics.slice(0, rows),
            self._partitions.slice(0, rows),
            records.column("offset"),
            _microseconds(records.column("timestamp")),
            self._timestamp_types(rows, timestamp_types),
        ]
        if self._schema is SCHEMA_WITH_HEADERS:
            columns.append(_null_if_none(records.column("headers").cast(HEADERS)))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _grow(self, rows: int) -> None:
        self._rows = rows
        self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), rows)
        self._partitions = pa.repeat(pa.scalar(self._partition, pa.int32()), rows)
        self._types.clear()

    def _timestamp_types(self, rows: int, runs: Sequence[tuple[int, int]]) -> pa.Array:
        if len(runs) == 1:
            kind = runs[0][0]
            if kind not in self._types:
                self._types[kind] = pa.repeat(pa.scalar(kind, pa.int32()), self._rows)
            return self._types[kind].slice(0, rows)
        found = array("i")
        for kind, count in runs:
            found += array("i", [kind]) * count
        return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(found)])


def _null_if_none(headers: pa.Array) -> pa.Array:
    """Spark's own source has null, and no empty list, for a record without headers."""
    return pc.if_else(pc.greater(pc.list_value_length(headers), 0), headers, None)


def _microseconds(milliseconds: pa.Array) -> pa.Array:
    """Times beyond what microseconds can say, 290,000 years from now, become the last ones."""
    try:
        found = pc.multiply_checked(milliseconds, _MS)
    except pa.ArrowInvalid:
        bounded = pc.min_element_wise(
            pc.max_element_wise(milliseconds, -_LATEST_MS), pa.scalar(_LATEST_MS, pa.int64())
        )
        found = pc.multiply(bounded, _MS)
    return found.view(TIMESTAMP)
