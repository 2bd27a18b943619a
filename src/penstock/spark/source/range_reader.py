"""Reads one range of offsets in a Spark task, as Arrow batches of Spark's schema.

Records go from record batches into Arrow buffers without a Python object for each. While Spark
processes one batch, the next response is fetched.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.spark.source.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 2 * 1024 * 1024
"""The approximate size of keys, values and headers in a batch for Spark. Larger batches cost the
worker a little less, but need more memory on both sides."""


@dataclass(frozen=True)
class ReadSettings:
    """How ranges are read; sent to the executors with the reader."""

    client: Mapping[str, str] = field(repr=False)
    """Settings of the consumer by Kafka's names, including passwords."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000


def read_range(offset_range: OffsetRange, settings: ReadSettings) -> "Iterator[pa.RecordBatch]":
    """Yields the records of a range in the order of their offsets.

    Raises `DataLossError` if some no longer exist (unless `fail_on_data_loss` is off) or the topic
    was created again; `KafkaTimeoutError` if nothing arrives for `poll_timeout_ms`.
    """
    end = offset_range.end
    if offset_range.start >= end:
        return
    # Imported here, because Spark starts a process per query that only plans.
    from penstock.records.arrow import ArrowDecoder
    from penstock.spark.source.clients import client_for
    from penstock.spark.source.columns import SparkColumns
    from penstock.spark.source.range_fetch import RangeFetch

    columns = SparkColumns(
        offset_range.topic, offset_range.partition, headers=settings.include_headers
    )
    with client_for(settings.client) as client:
        fetch = RangeFetch(
            offset_range,
            client,
            fail_on_data_loss=settings.fail_on_data_loss,
            poll_timeout_ms=settings.poll_timeout_ms,
        )
        try:
            for response in fetch:
                while not response.is_consumed and response.next_offset < end:
                    # The fetched response has checked its batches and skips aborted ones.
                    decoder = ArrowDecoder(
                        check_crcs=False, headers=settings.include_headers, microseconds=True
                    )
                    if response.take_arrow(
                        decoder, end_offset=offset_range.end, max_bytes=BATCH_BYTES
                    ):
                        types = decoder.timestamp_types
                        yield from _cut(columns.record_batch(decoder.finish(), types))
        finally:
            fetch.close()


def _cut(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """Yields slices of a record batch that was decompressed to more than Spark should get."""
    rows = batch.num_rows
    parts = min(rows, batch.nbytes // (4 * BATCH_BYTES))
    if parts <= 1:
        yield batch
        return
    step = -(-rows // parts)
    for start in range(0, rows, step):
        yield batch.slice(start, step)
