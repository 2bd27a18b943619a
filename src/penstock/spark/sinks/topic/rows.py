"""Converts rows with the columns `key`, `value`, `headers`, `topic`, `partition` to records.

Columns, types and error messages are those of Spark's own Kafka sink. `RecordSender` hands the
records to a producer; nothing else here does I/O.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.core.errors import KafkaError
from penstock.spark.errors import OptionError, PipelineError
from penstock.spark.sinks.topic.ledger import check_destination

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.producer.bulk_future import BulkFuture
    from penstock.client.producer.future import RecordMetadata
    from penstock.client.producer.producer import Producer

Headers = Sequence[tuple[str, bytes | None]]

_TEXT_OR_BYTES: Final = ("string", "binary")
_TYPES: Final[Mapping[str, Sequence[str]]] = {
    "topic": ("string",),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
COLUMNS: Final = tuple(_TYPES)

_CHUNK_ROWS: Final = 50_000
"""The number of rows that are converted to Python objects at a time."""


@dataclass(frozen=True)
class RecordChunk:
    """Records for one topic, in order; all for the same partition if that is given."""

    topic: str
    partition: int | None
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    """None if no record has headers."""


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Raises `OptionError` if columns of these types (Spark's names) cannot be written.

    Columns of other names are ignored, as by Spark's own sink.
    """
    if topic is None and "topic" not in types:
        raise OptionError(
            "topic option required when no 'topic' attribute is present",
            remedy="set the option `topic`, or add a column `topic`",
        )
    if "value" not in types:
        raise OptionError(
            f"Required attribute 'value' not found among {', '.join(types) or 'no columns'}",
            remedy="name a column `value`, a string or binary; to_json(struct(*)) makes one of "
            "all columns",
        )
    for name, allowed in _TYPES.items():
        if name not in types or (name == "topic" and topic is not None):
            continue
        if types[name] not in allowed:
            raise OptionError(
                f"{name} attribute unsupported type {types[name]}. {name} must be a(n) "
                f"{' or '.join(allowed)}",
                remedy="cast it",
            )


def types_of(schema: "pa.Schema") -> dict[str, str]:
    """Returns Spark's names of the types that this sink takes, and Arrow's names of others."""
    import pyarrow as pa

    def name(kind: "pa.DataType") -> str:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return "string"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return "binary"
        if pa.types.is_int32(kind):
            return "int"
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return f"array<{name(kind.value_type)}>"
        if pa.types.is_struct(kind):
            fields = (kind.field(index) for index in range(kind.num_fields))
            return f"struct<{','.join(f'{field.name}:{name(field.type)}' for field in fields)}>"
        return str(kind)

    return {field.name: name(field.type) for field in schema}


def record_chunks(table: "pa.Table", topic: str | None) -> Iterator[RecordChunk]:
    """Yields the records of a table; `topic` takes precedence over the column of this name.

    Records for the same partition keep the order of their rows.
    """
    check_columns(types_of(table.schema), topic)
    for start in range(0, table.num_rows, _CHUNK_ROWS):
        rows = table.slice(start, _CHUNK_ROWS).combine_chunks()
        if topic is not None:
            check_destination(topic)
            yield from _of_topic(rows, topic)
            continue
        for name, topic_rows in _split(rows, "topic"):
            if not isinstance(name, str):
                raise PipelineError(
                    "the data contains a null topic",
                    remedy="set the option `topic` for all rows, or leave such rows out",
                )
            check_destination(name)
            yield from _of_topic(topic_rows, name)


class RecordSender:
    """Sends chunks of records with a producer. Used by one thread."""

    def __init__(self, producer: "Producer") -> None:
        self.rows = 0
        self._producer = producer
        self._bulk_futures: list[BulkFuture] = []
        self._error: KafkaError | None = None

    def send(
        self, chunks: Iterator[RecordChunk], check_deadline: Callable[[], None] | None = None
    ) -> None:
        """Hands records to the producer, which sends them later.

        Calls `check_deadline` after each chunk.
        """
        for chunk in chunks:
            self.rows += len(chunk.values)
            if chunk.headers is None:
                self._bulk_futures.append(
                    self._producer.send_many(
                        chunk.topic, chunk.values, chunk.keys, partition=chunk.partition
                    )
                )
            else:
                self._send_each(chunk, chunk.headers)
            if check_deadline is not None:
                check_deadline()

    def _send_each(self, chunk: RecordChunk, all_headers: list[Headers]) -> None:
        topic, partition = chunk.topic, chunk.partition
        keys = chunk.keys or [None] * len(chunk.values)
        for key, value, headers in zip(keys, chunk.values, all_headers, strict=True):
            self._producer.send(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                on_delivery=self._delivered,
            )

    def _delivered(self, metadata: "RecordMetadata | None", error: KafkaError | None) -> None:
        if error is not None and self._error is None:
            self._error = error

    def wait(self) -> None:
        """Waits until all records are acknowledged. Raises the first error."""
        self._producer.flush()
        if self._error is not None:
            raise self._error
        for future in self._bulk_futures:
            error = future.exception()
            if error is not None:
                raise error


def _of_topic(rows: "pa.Table", topic: str) -> Iterator[RecordChunk]:
    if "partition" not in rows.column_names:
        yield _chunk(rows, topic, None)
        return
    # If some rows name a partition and others leave it to their key, both may go to the same
    # partition: then only adjacent rows may be grouped, to keep their order.
    nulls = rows.column("partition").null_count
    split = _split if nulls in (0, rows.num_rows) else _runs
    for partition, partition_rows in split(rows, "partition"):
        if isinstance(partition, int) and partition < 0:
            raise PipelineError(
                f"partition {partition} in the data: partitions are numbered from 0, and null "
                "leaves the choice to the key"
            )
        yield _chunk(partition_rows, topic, partition if isinstance(partition, int) else None)


def _chunk(rows: "pa.Table", topic: str, partition: int | None) -> RecordChunk:
    keys = _bytes(rows, "key") if "key" in rows.column_names else None
    return RecordChunk(topic, partition, _bytes(rows, "value"), keys, _headers(rows))


def _split(rows: "pa.Table", column: str) -> "Iterator[tuple[object, pa.Table]]":
    """Yields the rows of each value of a column, in the order of first occurrence."""
    import pyarrow.compute as pc

    values = rows.column(column)
    distinct = pc.unique(values)
    if len(distinct) <= 1:
        if rows.num_rows:
            yield distinct[0].as_py(), rows
        return
    codes = pc.index_in(values, value_set=distinct)
    order = pc.sort_indices(codes)  # stable: rows keep their order
    counts = pc.value_counts(pc.take(codes, order))
    ordered = rows.take(order)
    start = 0
    for count in counts:
        length = count["counts"].as_py()
        yield distinct[count["values"].as_py()].as_py(), ordered.slice(start, length)
        start += length


def _runs(rows: "pa.Table", column: str) -> "Iterator[tuple[object, pa.Table]]":
    """Yields adjacent rows with the same value of a column."""
    values = rows.column(column).to_pylist()
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or values[end] != values[start]:
            yield values[start], rows.slice(start, end - start)
            start = end


def _bytes(rows: "pa.Table", column: str) -> list[bytes | None]:
    import pyarrow as pa

    values = rows.column(column).cast(pa.large_binary())
    items: list[bytes | None] = values.to_numpy(zero_copy_only=False).tolist()
    return items


def _headers(rows: "pa.Table") -> list[Headers] | None:
    if "headers" not in rows.column_names:
        return None
    column = rows.column("headers")
    if column.null_count == rows.num_rows:
        return None
    all_headers: list[Headers] = [
        [_header(header) for header in headers or ()] for headers in column.to_pylist()
    ]
    return all_headers if any(all_headers) else None


def _header(header: Mapping[str, object] | None) -> tuple[str, bytes | None]:
    key = header["key"] if header is not None else None
    if header is None or not isinstance(key, str):
        raise PipelineError("the data contains a header without a key: every header needs one")
    value = header["value"]
    return key, value if isinstance(value, bytes) else None
