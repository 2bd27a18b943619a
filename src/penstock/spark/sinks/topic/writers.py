"""`format("penstock")` as a sink: `df.write` and `df.writeStream`.

By default tasks send their rows themselves, at least once, as with Spark's own Kafka sink. In
transactional mode tasks return their rows to the driver (compressed Arrow in the commit message),
which writes all of them in one Kafka transaction. A stream with a name (`pipeline`) is
exactly-once: its transaction also contains the number of the batch.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from penstock.spark.clients import new_producer
from penstock.spark.errors import OptionError, PipelineError
from penstock.spark.sinks.topic.named_stream import NamedStream
from penstock.spark.sinks.topic.options import WriterOptions
from penstock.spark.sinks.topic.rows import COLUMNS, RecordSender, check_columns, record_chunks
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions, Work

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.client.producer.producer import Producer

logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """The commit message of a task that has sent its rows."""

    rows: int


@dataclass(frozen=True)
class TaskRows(WriterCommitMessage):
    """The commit message of a task with its rows, which the driver sends."""

    rows: int
    arrow: bytes
    """A compressed Arrow stream; empty without rows."""
    query_id: str
    """Spark's id of the query; empty in a batch write."""


def batch_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool = False
) -> DataSourceArrowWriter:
    """Returns the writer of `df.write`: at least once, or with `transactional=true` atomic."""
    if overwrite:
        raise OptionError(
            "mode overwrite is not possible: a topic can only be appended to",
            remedy='use mode("append")',
        )
    parsed = _parse(options, schema)
    if parsed.is_transactional:
        return TransactionalBatchWriter(parsed)
    return DirectBatchWriter(parsed)


def stream_writer(options: Mapping[str, str], schema: "StructType") -> DataSourceStreamArrowWriter:
    """Returns the writer of `df.writeStream`: exactly once with `pipeline`, else at least once.

    In output mode `complete` all rows are written again in every batch, as by Spark's own sink.
    """
    parsed = _parse(options, schema)
    if parsed.pipeline is not None:
        return TransactionalStreamWriter(parsed)
    if parsed.is_transactional:
        raise OptionError(
            "transactional=true of a stream needs the option pipeline: a name under which the "
            "query's progress is stored"
        )
    return DirectStreamWriter(parsed)


def _parse(options: Mapping[str, str], schema: "StructType") -> WriterOptions:
    parsed = WriterOptions.of(options)
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    check_columns(types, parsed.topic)
    return parsed


class DirectBatchWriter(DataSourceArrowWriter):
    """Tasks send their rows; a task that Spark repeats sends them again."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _send(self._options, iterator)


class DirectStreamWriter(DataSourceStreamArrowWriter):
    """Like `DirectBatchWriter`; batches that Spark repeats are written again."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _send(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == 0:
            logger.warning(
                "this query writes at least once: rows can be duplicated when a batch is repeated. "
                'With .option("pipeline", "<a name that stays>") it is exactly-once'
            )


class TransactionalBatchWriter(DataSourceArrowWriter):
    """Writes all rows in one transaction: all become visible at once, or none."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options
        name = options.pipeline
        self._name = f"write:{uuid.uuid4() if name is None else name}"

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _collect_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        task_rows = _with_rows(messages)
        if not task_rows:
            return
        transactions = Transactions(self._options.client, self._name)
        try:
            transactions.fence()
            transactions.run(_send_in_transaction(task_rows, self._options.topic), {})
        finally:
            transactions.close()


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch in one transaction; the name of the pipeline fences other drivers."""

    def __init__(self, options: WriterOptions) -> None:
        assert options.pipeline is not None
        self._options = options
        self._pipeline = options.pipeline

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _collect_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        task_rows = _with_rows(messages)
        if not task_rows:
            return
        query_ids = {message.query_id for message in task_rows}
        if len(query_ids) > 1 or "" in query_ids:
            raise PipelineError(
                f"pipeline {self._pipeline}: tasks do not agree on the id of their query "
                f"({', '.join(sorted(query_ids))})"
            )
        stream = NamedStream(self._options, self._pipeline)
        try:
            stream.commit(
                query_ids.pop(),
                batchId,
                sum(message.rows for message in task_rows),
                _send_in_transaction(task_rows, self._options.topic),
            )
        finally:
            stream.close()


def _send(options: WriterOptions, batches: "Iterator[pa.RecordBatch]") -> SentRows:
    import pyarrow as pa

    with new_producer(options.client) as producer:
        sender = RecordSender(producer)
        for batch in batches:
            table = _needed(pa.Table.from_batches([batch]))
            sender.send(record_chunks(table, options.topic))
        sender.wait()
        return SentRows(sender.rows)


def _collect_rows(batches: "Iterator[pa.RecordBatch]") -> TaskRows:
    import pyarrow as pa

    context = TaskContext.get()
    query_id = "" if context is None else context.getLocalProperty(_QUERY_ID) or ""
    sink = pa.BufferOutputStream()
    writer: pa.RecordBatchStreamWriter | None = None
    rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        table = _needed(pa.Table.from_batches([batch]))
        if writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_stream(sink, table.schema, options=options)
        writer.write_table(table)
        rows += batch.num_rows
    if writer is None:
        return TaskRows(0, b"", query_id)
    writer.close()
    return TaskRows(rows, sink.getvalue().to_pybytes(), query_id)


def _needed(table: "pa.Table") -> "pa.Table":
    return table.select(
        [column_name for column_name in table.column_names if column_name in COLUMNS]
    )


def _table(message: TaskRows) -> "pa.Table":
    import pyarrow as pa

    return pa.ipc.open_stream(message.arrow).read_all()


def _with_rows(messages: list[WriterCommitMessage | None]) -> list[TaskRows]:
    return [message for message in messages if isinstance(message, TaskRows) and message.rows]


def _send_in_transaction(task_rows: list[TaskRows], topic: str | None) -> Work:
    def work(producer: "Producer", check_deadline: CheckDeadline) -> None:
        sender = RecordSender(producer)
        for message in task_rows:
            sender.send(record_chunks(_table(message), topic), check_deadline)

    return work
