"""Spark's columns from decoded records."""

import pyarrow as pa
import pytest

from penstock.records.arrow import ArrowDecoder
from penstock.records.batch import TimestampType
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.spark.source.columns import SparkColumns
from tests.support.spark.ranges import Row, rows_of


def decoded(
    columns: SparkColumns, *batches: bytes, headers: bool = False
) -> tuple[list[Row], pa.RecordBatch]:
    decoder = ArrowDecoder(headers=headers, microseconds=True)
    for batch in batches:
        decoder.add(batch)
    types = decoder.timestamp_types
    record_batch = columns.record_batch(decoder.finish(), types)
    return rows_of([record_batch]), record_batch


def batch(first: int, *timestamps: int, kind: TimestampType = TimestampType.CREATE_TIME) -> bytes:
    records = [
        Record(first + index, timestamp, None, b"v") for index, timestamp in enumerate(timestamps)
    ]
    return bytes(build_batch(records, base_offset=first, timestamp_type=kind))


def test_batches_of_both_kinds_of_timestamps() -> None:
    rows, _ = decoded(
        SparkColumns("t", 3, headers=False),
        batch(0, 10, 11),
        batch(2, 12),
        batch(3, 20, 21, kind=TimestampType.LOG_APPEND_TIME),
        batch(5, 30),
    )
    assert [row.timestamp_type for row in rows] == [0, 0, 0, 1, 1, 0]
    assert [row.timestamp for row in rows] == [10_000, 11_000, 12_000, 21_000, 21_000, 30_000]
    assert {(row.topic, row.partition) for row in rows} == {("t", 3)}


def test_batches_of_growing_and_shrinking_lengths() -> None:
    columns = SparkColumns("topic", 7, headers=False)
    for count in (1, 5000, 2, 20_000, 3):
        rows, record_batch = decoded(columns, batch(0, *range(count)))
        assert record_batch.num_rows == count
        assert rows[-1] == Row(None, b"v", "topic", 7, count - 1, 1000 * (count - 1), 0)


@pytest.mark.parametrize(
    ("milliseconds", "microseconds"),
    [
        (-1, -1000),
        (0, 0),
        ((2**63 - 1) // 1000, (2**63 - 1) // 1000 * 1000),
        (2**63 - 1, (2**63 - 1) // 1000 * 1000),
        (2**60, (2**63 - 1) // 1000 * 1000),
        (-(2**62), -((2**63 - 1) // 1000 * 1000)),
    ],
)
def test_times_at_the_limits(milliseconds: int, microseconds: int) -> None:
    """A missing timestamp is -1 ms, as in Spark's own source; invalid values are clamped."""
    rows, _ = decoded(SparkColumns("t", 0, headers=False), batch(0, 5, milliseconds))
    assert [row.timestamp for row in rows] == [5000, microseconds]


def test_headers() -> None:
    records = [
        Record(0, 1, b"k", None, (("a", b"1"), ("b", None))),
        Record(1, 1, None, b"", ()),
        Record(2, 1, b"", b"v", (("ü", b""),)),
    ]
    log = bytes(build_batch(records, base_offset=0))
    rows, record_batch = decoded(SparkColumns("t", 0, headers=True), log, headers=True)
    assert record_batch.column("headers")[1].as_py() is None, "as in Spark's own source"
    assert [(row.key, row.value, row.headers) for row in rows] == [
        (record.key, record.value, record.headers) for record in records
    ]
    bare, record_batch = decoded(SparkColumns("t", 0, headers=False), log)
    assert [(row.key, row.value, row.headers) for row in bare] == [
        (record.key, record.value, None) for record in records
    ]
    assert record_batch.num_columns == 7
