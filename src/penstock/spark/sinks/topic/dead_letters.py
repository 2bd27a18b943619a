"""Dead letters in a topic, each exactly once.

A dead letter is identified by its origin: source, topic, partition and offset are in its headers.
None was written at or after the end offsets of the last batch that had dead letters. For records
before those, when a batch or everything is read again, the topic itself is searched: with another
schema other records are dead letters.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import describe_topic, new_admin
from penstock.spark.errors import PipelineError
from penstock.spark.exactly_once import recreated_topics
from penstock.spark.pipeline.model import DEAD_LETTERS
from penstock.spark.progress import Batch, SourceOffsets, StoredProgress
from penstock.spark.sinks.topic.ledger import LedgerEntry, committed_consumer, committed_records
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.producer.producer import Producer

SUFFIX = f".{DEAD_LETTERS}"


Origin: TypeAlias = tuple[str, str, str, int, int]
"""Source, topic, its id, partition, offset."""

WrittenDeadLetters: TypeAlias = Callable[[], Collection[Origin]]
"""Returns the origins of the pipeline's dead letters that are in their topic."""


class DeadLetterLog:
    """The dead letters that a query has written to a topic, to write only new ones.

    `key` is the key of the query, `client` has Kafka's settings by their dotted names. The caller
    must have fenced other writers of the query.
    """

    def __init__(
        self, topic: str, key: str, client: Mapping[str, str], entry: LedgerEntry | None, owner: str
    ) -> None:
        self._topic = topic
        self._pipeline = key.rpartition(".")[0] or key
        self._entry = entry
        self._owner = owner
        self._written = _written_dead_letters(client, topic, self._pipeline)

    def select_new(
        self, dead_letters: "pa.Table | None", batch: Batch
    ) -> "tuple[pa.Table, LedgerEntry] | None":
        """Returns the new dead letters of a batch and their ledger entry; None without any."""
        if dead_letters is None:
            return None
        new_letters = drop_written(dead_letters, self._entry, self._written)
        if not new_letters.num_rows:
            return None
        return new_letters, advance_entry(self._entry, batch, self._owner, new_letters.num_rows)

    def send(self, producer: "Producer", dead_letters: "pa.Table") -> None:
        """Sends dead letters with their own key and value; headers have origin and reason."""
        from penstock.spark.decode.dead_letters import to_records

        number = dead_letters.schema.get_field_index("timestamp")
        times = in_years(dead_letters.column(number))
        dead_letters = dead_letters.set_column(number, "timestamp", times)
        for key, value, headers in to_records(dead_letters, self._pipeline):
            producer.send(self._topic, value, key=key, headers=headers)

    def advance(self, entry: LedgerEntry) -> None:
        """Continues from an entry, after its transaction was committed."""
        self._entry = entry


class DeadLetterTopic:
    """The dead-letter topic of a query whose sink cannot store dead letters with its results.

    Results and dead letters are two transactions then, dead letters first. After a crash in between
    Spark repeats the batch, and its dead letters are found in the topic.
    """

    def __init__(self, topic: str, key: str, client: Mapping[str, str]) -> None:
        self._topic = topic
        self._key = key
        self._client = client
        self._transactions = Transactions(client, key + SUFFIX)
        self._log: DeadLetterLog | None = None

    def open(self, owner: str) -> None:
        """Takes the topic over for this query; the previous owner now gets `FencedError`."""
        entry = self._transactions.open()
        self._log = DeadLetterLog(self._topic, self._key, self._client, entry, owner)

    def write(self, dead_letters: "pa.Table", batch: Batch) -> int:
        """Writes the dead letters that are new, in one transaction, and returns their number."""
        assert self._log is not None
        log = self._log
        new = log.select_new(dead_letters, batch)
        if new is None:
            return 0
        new_letters, entry = new

        def work(producer: "Producer", check_deadline: CheckDeadline) -> None:
            log.send(producer, new_letters)
            check_deadline()

        self._transactions.run(work, {self._transactions.key: entry})
        log.advance(entry)
        return int(new_letters.num_rows)

    def close(self) -> None:
        self._transactions.close()


def advance_entry(entry: LedgerEntry | None, batch: Batch, owner: str, rows: int) -> LedgerEntry:
    """Returns the ledger entry that is stored with the dead letters of a batch.

    Its offsets never decrease: after a rebuild a batch may end before offsets whose dead letters
    were written earlier.
    """
    stored = entry.stored.progress if entry is not None and entry.stored is not None else {}
    progress = dict(stored)
    for name, end in batch.end.items():
        before = stored.get(name, SourceOffsets({}))
        recreated = recreated_topics(before, end)
        offsets = {
            partition: offset
            for partition, offset in before.offsets.items()
            if partition.topic not in recreated
        }
        for partition, offset in end.offsets.items():
            offsets[partition] = max(offset, offsets.get(partition, 0))
        progress[name] = SourceOffsets(offsets, {**before.topic_ids, **end.topic_ids}, end.source)
    return LedgerEntry(StoredProgress(progress, batch.query_id, batch.batch_id), owner, rows)


def _written_dead_letters(
    client: Mapping[str, str], topic: str, pipeline: str
) -> WrittenDeadLetters:
    """Returns a function that reads the topic at its first call. Fence other writers first."""

    @cache
    def written() -> Collection[Origin]:
        try:
            return frozenset(_read_origins(client, topic, pipeline))
        except KafkaError as error:
            raise PipelineError(
                f"the dead letters of {pipeline} that are in topic {topic} could not be read: "
                f"{error}"
            ) from error

    return written


def _read_origins(client: Mapping[str, str], topic: str, pipeline: str) -> Iterator[Origin]:
    from penstock.client.admin.model_topics import OffsetSpec
    from penstock.spark.decode.dead_letters import from_record

    with new_admin(client) as admin:
        description = describe_topic(admin, topic)
        if description is None:
            return
        topic_partitions = [
            TopicPartition(topic, info.partition) for info in description.partitions
        ]
        starts = admin.list_offsets(dict.fromkeys(topic_partitions, OffsetSpec.EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(topic_partitions, OffsetSpec.LATEST))
    with committed_consumer(client) as consumer:
        for partition in topic_partitions:
            first, end = starts[partition].offset, ends[partition].offset
            for record in committed_records(consumer, partition, first, end):
                letter = from_record(record)
                if letter is not None and letter.pipeline == pipeline:
                    yield (letter.source, *letter.origin)


def drop_written(
    dead_letters: "pa.Table", entry: LedgerEntry | None, written: WrittenDeadLetters
) -> "pa.Table":
    """Returns the dead letters that are not in the topic yet."""
    if entry is None or entry.stored is None or dead_letters.num_rows == 0:
        return dead_letters
    import pyarrow as pa

    origins = dead_letters.select(["source", "topic", "topic_id", "partition", "offset"])
    keep: list[bool] = []
    for row in origins.to_pylist():
        source = entry.stored.progress.get(row["source"])
        if source is None:
            keep.append(True)
            continue
        topic_id = source.topic_ids.get(row["topic"])
        is_other_topic = bool(topic_id and row["topic_id"] and topic_id != row["topic_id"])
        stored = source.offsets.get(TopicPartition(row["topic"], row["partition"]), -1)
        origin = (
            row["source"],
            row["topic"],
            row["topic_id"] or "",
            row["partition"],
            row["offset"],
        )
        keep.append(is_other_topic or row["offset"] >= stored or origin not in written())
    return dead_letters.filter(pa.array(keep, pa.bool_()))


def in_years(times: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Replaces times outside of the years 1 to 9999 by null: producers may set any timestamp."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    is_known = pc.and_(pc.greater_equal(times, first), pc.less(times, last))
    return pc.if_else(is_known, times, pa.scalar(None, times.type))
