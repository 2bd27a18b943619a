"""The topic sink of a pipeline: one Kafka transaction for each micro-batch.

The transaction commits rows, dead letters and progress together, so consumers with
`isolation.level=read_committed` see every row exactly once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import new_admin
from penstock.spark.decode.datatypes import quote_name
from penstock.spark.errors import OptionError, PipelineError
from penstock.spark.progress import Batch, Progress, StoredProgress
from penstock.spark.sinks.port import DeadLetters, Sink, WriteResult
from penstock.spark.sinks.topic.dead_letters import SUFFIX, DeadLetterLog
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.spark.sinks.topic.ledger import LedgerEntry
from penstock.spark.sinks.topic.options import TopicSinkOptions
from penstock.spark.sinks.topic.rows import COLUMNS, RecordSender, check_columns, record_chunks
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.client.producer.producer import Producer


class TopicSink(Sink):
    """Writes through the driver: a batch must fit into its memory (`spark.driver.maxResultSize`).

    `client` has Kafka's settings by their dotted names; `kafka.…` in `spec.options` overrides them.
    """

    def __init__(
        self,
        spec: TopicSinkSpec,
        key: str,
        client: Mapping[str, str],
        *,
        dead_letter_topic: str | None = None,
    ) -> None:
        options = TopicSinkOptions.of(spec.options)
        self.takes_dead_letters = dead_letter_topic is not None
        self._spec = spec
        self._key = key
        self._client = {**client, **options.client}
        self._on_rebuild = options.on_rebuild
        self._dead_letter_topic = dead_letter_topic
        self._transactions = Transactions(self._client, key)
        self._owner = ""
        self._dead_letters: DeadLetterLog | None = None

    def open(self, owner: str) -> StoredProgress | None:
        self._owner = owner
        entry = self._transactions.open()
        if self._dead_letter_topic is not None:
            letters = self._transactions.ledger.read(self._key + SUFFIX)
            self._dead_letters = DeadLetterLog(
                self._dead_letter_topic, self._key, self._client, letters, owner
            )
        if entry is not None and entry.clearing:
            # A query whose records cannot be deleted must be able to run again.
            if self._on_rebuild == "keep":
                self._put(None)
            else:
                self._delete_records(entry.clearing)
            return None
        return None if entry is None else entry.stored

    def begin_at(self, start: Progress) -> None:
        self._transactions.run(
            lambda producer, check_deadline: None,
            {self._key: LedgerEntry(StoredProgress(start), self._owner)},
        )

    def write(
        self, rows: "DataFrame", batch: Batch, dead_letters: "DeadLetters | None" = None
    ) -> WriteResult:
        table = as_records(rows, self._spec).toArrow()
        return self.write_table(table, batch, dead_letters() if dead_letters else None)

    def write_table(
        self, rows: "pa.Table", batch: Batch, dead_letters: "pa.Table | None" = None
    ) -> WriteResult:
        """Like `write`, for rows that have the columns of Spark's Kafka sink."""
        stored = StoredProgress(batch.end, batch.query_id, batch.batch_id)
        entries: dict[str, LedgerEntry | None] = {
            self._key: LedgerEntry(stored, self._owner, rows.num_rows)
        }
        log = self._dead_letters
        if log is None and dead_letters is not None and dead_letters.num_rows:
            raise OptionError(f"{self._key} has no dead-letter topic", remedy="name one")
        new = None if log is None else log.select_new(dead_letters, batch)
        if new is not None:
            entries[self._key + SUFFIX] = new[1]

        def work(producer: "Producer", check_deadline: CheckDeadline) -> None:
            RecordSender(producer).send(record_chunks(rows, self._spec.topic), check_deadline)
            if log is not None and new is not None:
                log.send(producer, new[0])

        self._transactions.run(work, entries)
        if log is not None and new is not None:
            log.advance(new[1])
        return WriteResult(rows.num_rows, 0 if new is None else new[0].num_rows)

    def clear(self) -> None:
        """Removes the progress; deletes or keeps the records, as the option `onRebuild` says.

        The topic may have other writers, so it raises `PipelineError` unless the option is set.
        Dead letters stay; those that exist are not written again.
        """
        if self._on_rebuild == "refuse":
            raise PipelineError(
                f"{self._key} cannot be rebuilt as it is: readers of topic "
                f"{self._spec.topic or 'its topics'} would see every row a second time",
                remedy="set the sink's option onRebuild: `delete` deletes all records of the "
                "topic first, also those of other writers; `keep` appends the new ones (right for "
                "a compacted topic, where the new value of a key replaces the old)",
            )
        if self._on_rebuild == "keep":
            self._put(None)
            return
        if self._spec.topic is None:
            raise PipelineError(
                f"{self._key} cannot delete records of topics that a column names",
                remedy="name the topic in the sink, or set onRebuild to `keep` and delete them "
                "yourself",
            )
        ends = self._end_offsets(self._spec.topic)
        # From here on the rebuild is committed: the next owner finishes it after a crash.
        self._put(LedgerEntry(None, self._owner, clearing=ends))
        self._delete_records(ends)

    def close(self) -> None:
        self._transactions.close()

    def _put(self, entry: LedgerEntry | None) -> None:
        self._transactions.run(lambda producer, check_deadline: None, {self._key: entry})

    def _end_offsets(self, topic: str) -> dict[TopicPartition, int]:
        from penstock.client.admin.model_topics import OffsetSpec

        try:
            with new_admin(self._client) as admin:
                count = len(admin.describe_topics([topic])[topic].partitions)
                partitions = [TopicPartition(topic, number) for number in range(count)]
                ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        except KafkaError as error:
            raise PipelineError(f"{self._key} cannot be cleared: {error}") from error
        return {partition: end.offset for partition, end in ends.items()}

    def _delete_records(self, ends: Mapping[TopicPartition, int]) -> None:
        try:
            with new_admin(self._client) as admin:
                admin.delete_records(ends)
        except KafkaError as error:
            topics = ", ".join(sorted({end.topic for end in ends}))
            raise PipelineError(
                f"{self._key} is being rebuilt, and the records of {topics} could not be deleted: "
                f"{error}. A topic with cleanup.policy=compact does not delete, and one that was "
                "created again has none of them",
                remedy="set onRebuild to `keep`. Then start again",
            ) from error
        self._put(None)


def as_records(rows: "DataFrame", spec: TopicSinkSpec) -> "DataFrame":
    """Returns the columns to write; raises `OptionError` before anything runs if they are wrong."""
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    if "value" in types:
        if spec.key:
            raise OptionError(
                f"sink {spec.name}: `key` is for views without a column `value`; the view "
                f"{spec.view} has one, so name its column for keys `key`"
            )
        check_columns(types, spec.topic)
        return rows.select(*(name for name in COLUMNS if name in types))
    if spec.topic is None:
        raise OptionError(
            f"sink {spec.name}: name a topic. The view {spec.view} has no column `value`: its "
            "rows are written as JSON, and a column `topic` would be a part of that"
        )
    missing = [name for name in spec.key if name not in types]
    if missing:
        raise OptionError(
            f"sink {spec.name}: the view {spec.view} has no column {', '.join(missing)} for the "
            f"key: it has {', '.join(types)}"
        )
    from pyspark.sql.functions import col, struct, to_json

    columns = [to_json(struct(*(col(quote_name(name)) for name in types))).alias("value")]
    if spec.key:
        key = struct(*(col(quote_name(name)) for name in spec.key))
        columns.append(to_json(key, {"ignoreNullFields": "false"}).alias("key"))
    return rows.select(*columns)
