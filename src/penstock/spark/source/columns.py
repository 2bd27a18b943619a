"""Arrow batches with the columns of Spark's Kafka source.

The schema is exactly the one that Spark expects: the Arrow form of the source's own schema, with
timestamps in microseconds UTC. The columns for topic and partition are constant; they are created
once and sliced to the length of each batch.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

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


class SparkColumns:
    """Builds the batches of one partition."""

    def __init__(self, topic: str, partition: int, *, headers: bool) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._schema = SCHEMA_WITH_HEADERS if headers else SCHEMA
        self._rows = 0
        self._topics = _texts(b"", 0)
        self._partitions = _numbers([])
        self._types: dict[int, pa.Array] = {}

    def record_batch(
        self, records: pa.RecordBatch, timestamp_types: Sequence[tuple[int, int]]
    ) -> pa.RecordBatch:
        """Returns the batch for Spark from the records and timestamp types of an ArrowDecoder."""
        rows = records.num_rows
        if rows > self._rows:
            self._grow(max(rows, 2 * self._rows, _LEAST_ROWS))
        columns = [
            records.column("key"),
            records.column("value"),
            self._topics.slice(0, rows),
            self._partitions.slice(0, rows),
            records.column("offset"),
            records.column("timestamp"),
            self._timestamp_types(rows, timestamp_types),
        ]
        if self._schema is SCHEMA_WITH_HEADERS:
            columns.append(_headers(records.column("headers")))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _grow(self, rows: int) -> None:
        self._rows = rows
        self._topics = _texts(self._topic, rows)
        self._partitions = _numbers([(self._partition, rows)])
        self._types.clear()

    def _timestamp_types(self, rows: int, runs: Sequence[tuple[int, int]]) -> pa.Array:
        if len(runs) != 1:
            return _numbers(runs)
        kind = runs[0][0]
        if kind not in self._types:
            self._types[kind] = _numbers([(kind, self._rows)])
        return self._types[kind].slice(0, rows)


# Built from buffers: Arrow's own functions for this import pandas or its compute functions, which
# takes longer than reading a small batch.


def _numbers(runs: Sequence[tuple[int, int]]) -> pa.Array:
    """Returns an array of runs: pairs of a number and its count."""
    numbers = array("i")
    for number, count in runs:
        numbers += array("i", [number]) * count
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)], 0)


def _texts(text: bytes, count: int) -> pa.Array:
    """Returns an array with the same text `count` times."""
    size = len(text)
    ends = array("i", range(0, size * count + 1, size)) if size else array("i", [0]) * (count + 1)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers, 0)


def _headers(lists: pa.ListArray) -> pa.ListArray:
    """Returns headers as Spark's own source does: null if a record has none."""
    entries = lists.values
    renamed = pa.Array.from_buffers(
        _HEADER, len(entries), [None], 0, children=[entries.field(0), entries.field(1)]
    )
    ends = lists.buffers()[1]
    has_some = np.diff(np.frombuffer(ends, np.int32, len(lists) + 1)) > 0
    bits = pa.py_buffer(np.packbits(has_some, bitorder="little"))
    return pa.Array.from_buffers(HEADERS, len(lists), [bits, ends], children=[renamed])
