"""Fetches straight into Arrow: no object per record."""

from array import array
from typing import TYPE_CHECKING

from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.errors import ConfigError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.records.arrow import ArrowDecoder


def take_arrow(buffer: FetchBuffer, limit: int) -> "pa.RecordBatch | None":
    """Whole fetches until there are `limit` records; None where nothing is there.

    The columns: topic (dictionary), partition, offset, timestamp, key, value, headers.
    """
    decoder = _decoder()
    taken = buffer.collect_arrow(decoder, limit)
    return _with_partitions(decoder, taken) if taken else None


def no_records() -> "pa.RecordBatch":
    """The same columns, without rows."""
    return _with_partitions(_decoder(), [])


def _decoder() -> "ArrowDecoder":
    try:
        from penstock.records.arrow import ArrowDecoder

        # Batches were checked when they were looked at, and the aborted ones left out.
        return ArrowDecoder(check_crcs=False)
    except ModuleNotFoundError:
        raise ConfigError("poll_arrow needs pyarrow: pip install penstock[arrow]") from None


def _with_partitions(
    decoder: "ArrowDecoder", taken: list[tuple[TopicPartition, int]]
) -> "pa.RecordBatch":
    """The records with where they are from; `taken` says how many rows are from where."""
    import pyarrow as pa

    records = decoder.finish()
    topics = {name: index for index, name in enumerate(dict.fromkeys(tp.topic for tp, _ in taken))}
    topic_indexes = array("i")
    partitions = array("i")
    for partition, rows in taken:
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
