"""Fetched records as Arrow columns, without an object per record."""

from array import array
from typing import TYPE_CHECKING

from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.errors import ConfigError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.records.arrow import ArrowDecoder


def take_arrow(buffer: FetchBuffer, limit: int) -> "pa.RecordBatch | None":
    """Returns whole fetches until there are `limit` records; None without any records.

    The columns are topic (dictionary), partition, offset, timestamp, key, value, headers.
    """
    decoder = _decoder()
    row_counts = buffer.collect_arrow(decoder, limit)
    return _with_partitions(decoder, row_counts) if row_counts else None


def no_records() -> "pa.RecordBatch":
    """Returns the same columns without rows."""
    return _with_partitions(_decoder(), [])


def _decoder() -> "ArrowDecoder":
    try:
        from penstock.records.arrow import ArrowDecoder

        # `CompletedFetch` has checked the batches and skipped the aborted ones.
        return ArrowDecoder(check_crcs=False)
    except ModuleNotFoundError:
        raise ConfigError(
            "poll_arrow needs pyarrow", remedy="run pip install 'penstock[arrow]'"
        ) from None


def _with_partitions(
    decoder: "ArrowDecoder", row_counts: list[tuple[TopicPartition, int]]
) -> "pa.RecordBatch":
    """Returns the decoder's records with a topic and a partition column before the others."""
    import pyarrow as pa

    records = decoder.finish()
    topics = {
        name: index for index, name in enumerate(dict.fromkeys(tp.topic for tp, _ in row_counts))
    }
    topic_indexes = array("i")
    partitions = array("i")
    for partition, rows in row_counts:
        topic_indexes += array("i", [topics[partition.topic]]) * rows
        partitions += array("i", [partition.partition]) * rows
    rows = records.num_rows
    topic_column = pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(topic_indexes)]),
        pa.array(list(topics), pa.string()),
    )
    partition_column = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(partitions)])
    schema = pa.schema(
        [
            pa.field("topic", topic_column.type, nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            *records.schema,
        ]
    )
    return pa.RecordBatch.from_arrays(
        [topic_column, partition_column, *records.columns], schema=schema
    )
