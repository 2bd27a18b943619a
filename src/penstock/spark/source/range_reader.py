"""What a task of Spark does: read one range of offsets, as Arrow batches of Spark's schema.

Records go from the broker's batches into Arrow's buffers with no Python object for each. While
Spark takes one batch, the next answer of the broker is on its way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.spark.source.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 2 * 1024 * 1024
"""Of keys, values and headers in a batch for Spark, about. Fewer and larger ones cost the worker a
little less; what bounds them is memory on both sides."""


@dataclass(frozen=True)
class ReadSettings:
    """How ranges are read; goes to the executors with the reader."""

    client: Mapping[str, str] = field(repr=False)
    """Settings of the consumer by Kafka's names; passwords are among them."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000


def read_range(wanted: OffsetRange, settings: ReadSettings) -> "Iterator[pa.RecordBatch]":
    """The records of `wanted` in the order of their offsets; none where there are none.

    `DataLossError`: some are gone (unless `fail_on_data_loss` is off), or the topic is another one
    by now. `KafkaTimeoutError`: nothing came for `poll_timeout_ms`.
    """
    if wanted.start >= wanted.end:
        return
    # Here, because for each query Spark starts a process that plans and reads nothing.
    from penstock.records.arrow import ArrowDecoder
    from penstock.spark.source.clients import client_for
    from penstock.spark.source.columns import SparkColumns
    from penstock.spark.source.range_fetch import RangeFetch

    columns = SparkColumns(wanted.topic, wanted.partition, headers=settings.include_headers)
    with client_for(settings.client) as client:
        fetch = RangeFetch(
            wanted,
            client,
            fail_on_data_loss=settings.fail_on_data_loss,
            poll_timeout_ms=settings.poll_timeout_ms,
        )
        try:
            for answer in fetch:
                while not answer.is_consumed and answer.next_offset < wanted.end:
                    # Batches are checked when they are looked at, and aborted ones left out.
                    decoder = ArrowDecoder(
                        check_crcs=False, headers=settings.include_headers, microseconds=True
                    )
                    if answer.take_arrow(decoder, end_offset=wanted.end, max_bytes=BATCH_BYTES):
                        types = decoder.timestamp_types
                        yield from _cut(columns.record_batch(decoder.finish(), types))
        finally:
            fetch.close()


def _cut(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """In parts, where one batch of the broker unpacked to much more than Spark should get."""
    rows = batch.num_rows
    parts = min(rows, batch.nbytes // (4 * BATCH_BYTES))
    if parts <= 1:
        yield batch
        return
    step = -(-rows // parts)
    for start in range(0, rows, step):
        yield batch.slice(start, step)
