"""Records that could not be read, in a topic (D5), each exactly once.

Their place of origin is their identity: `topic`, `partition` and `offset` are in the headers. At
or behind the offsets of the last batch that had some, none was written. Below them, when a batch or
everything is read again, the topic itself says which were: another schema makes others.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import new_admin
from penstock.spark.errors import PipelineError
from penstock.spark.exactly_once import recreated_topics
from penstock.spark.progress import Batch, SourceOffsets, StoredProgress
from penstock.spark.sinks.topic.ledger import LedgerEntry, committed_consumer, committed_records
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.producer.producer import Producer

SUFFIX = ".dead-letters"


Origin: TypeAlias = tuple[str, str, str, int, int]
"""Source, topic, its id, partition, offset."""

WrittenDeadLetters: TypeAlias = Callable[[], Collection[Origin]]
"""The dead letters of a pipeline that are in their topic."""


class DeadLetterTopic:
    """For sinks that cannot store dead letters with their results.

    Results and dead letters are two transactions then: write the dead letters first. A crash in
    between makes the batch run again, and finds them written.

    `key` is that of the query, `client` has Kafka's dotted names.
    """

    def __init__(self, topic: str, key: str, client: Mapping[str, str]) -> None:
        self._topic = topic
        self._client = client
        self._pipeline = pipeline_of(key)
        self._transactions = Transactions(client, key + SUFFIX)
        self._owner = ""
        self._entry: LedgerEntry | None = None
        self._written: WrittenDeadLetters = frozenset

    def open(self, owner: str) -> None:
        """Take it over from whoever had it: `FencedError` for them from here on."""
        self._owner = owner
        self._entry = self._transactions.open()
        self._written = written_dead_letters(self._client, self._topic, self._pipeline)

    def write(self, dead_letters: "pa.Table", batch: Batch) -> int:
        """Write those that were not written before, in one transaction; how many."""
        fresh = drop_written(dead_letters, self._entry, self._written)
        if fresh.num_rows == 0:
            return 0
        entry = advance_entry(self._entry, batch, self._owner, fresh.num_rows)

        def work(producer: "Producer", check_deadline: CheckDeadline) -> None:
            send_dead_letters(producer, fresh, self._topic, self._pipeline)
            check_deadline()

        self._transactions.run(work, {self._transactions.key: entry})
        self._entry = entry
        return int(fresh.num_rows)

    def close(self) -> None:
        self._transactions.close()


def pipeline_of(key: str) -> str:
    """The pipeline's name in the key of a query."""
    return key.rpartition(".")[0] or key


def advance_entry(entry: LedgerEntry | None, batch: Batch, owner: str, rows: int) -> LedgerEntry:
    """What is stored with the dead letters of a batch: it never goes back.

    After a rebuild a batch ends before offsets whose dead letters were written long ago.
    """
    known = entry.stored.progress if entry is not None and entry.stored is not None else {}
    progress = dict(known)
    for name, end in batch.end.items():
        before = known.get(name, SourceOffsets({}))
        replaced = recreated_topics(before, end)
        offsets = {
            each: offset for each, offset in before.offsets.items() if each.topic not in replaced
        }
        for each, offset in end.offsets.items():
            offsets[each] = max(offset, offsets.get(each, 0))
        progress[name] = SourceOffsets(offsets, {**before.topic_ids, **end.topic_ids}, end.source)
    return LedgerEntry(StoredProgress(progress, batch.query_id, batch.batch_id), owner, rows)


def written_dead_letters(
    client: Mapping[str, str], topic: str, pipeline: str
) -> WrittenDeadLetters:
    """Reads the topic up to now when it is called for the first time. Fence other writers first."""

    @cache
    def written() -> Collection[Origin]:
        try:
            return frozenset(_read_origins(client, topic, pipeline))
        except KafkaError as error:
            raise PipelineError(
                f"the dead letters of {pipeline} that are in topic {topic} could not be looked up: "
                f"{error}"
            ) from error

    return written


def _read_origins(client: Mapping[str, str], topic: str, pipeline: str) -> Iterator[Origin]:
    from penstock.client.admin.model_topics import OffsetSpec
    from penstock.spark.decode.dead_letters import from_record

    with new_admin(client) as admin:
        try:
            partitions = admin.describe_topics([topic])[topic].partitions
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return
        places = [TopicPartition(topic, partition.partition) for partition in partitions]
        starts = admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    with committed_consumer(client) as consumer:
        for place in places:
            first, end = starts[place].offset, ends[place].offset
            for record in committed_records(consumer, place, first, end):
                letter = from_record(record)
                if letter is not None and letter.pipeline == pipeline:
                    yield (letter.source, *letter.origin)


def drop_written(
    dead_letters: "pa.Table", entry: LedgerEntry | None, written: WrittenDeadLetters
) -> "pa.Table":
    """Those at or behind the stored offsets, and those before them that are not in the topic."""
    if entry is None or entry.stored is None or dead_letters.num_rows == 0:
        return dead_letters
    import pyarrow as pa

    places = dead_letters.select(["source", "topic", "topic_id", "partition", "offset"])
    keep: list[bool] = []
    for row in places.to_pylist():
        source = entry.stored.progress.get(row["source"])
        if source is None:
            keep.append(True)
            continue
        known = source.topic_ids.get(row["topic"])
        is_other_topic = bool(known and row["topic_id"] and known != row["topic_id"])
        stored = source.offsets.get(TopicPartition(row["topic"], row["partition"]), -1)
        place = (
            row["source"],
            row["topic"],
            row["topic_id"] or "",
            row["partition"],
            row["offset"],
        )
        keep.append(is_other_topic or row["offset"] >= stored or place not in written())
    return dead_letters.filter(pa.array(keep, pa.bool_()))


def send_dead_letters(
    producer: "Producer", dead_letters: "pa.Table", topic: str, pipeline: str
) -> None:
    """As records with their own key and value; headers say where they are from, and what is wrong
    with them."""
    from penstock.spark.decode.dead_letters import to_records

    number = dead_letters.schema.get_field_index("timestamp")
    times = in_years(dead_letters.column(number))
    dead_letters = dead_letters.set_column(number, "timestamp", times)
    for key, value, headers in to_records(dead_letters, pipeline):
        producer.send(topic, value, key=key, headers=headers)


def in_years(times: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Null for those that neither Python nor all databases have: producers give what they like."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    is_known = pc.and_(pc.greater_equal(times, first), pc.less(times, last))
    return pc.if_else(is_known, times, pa.scalar(None, times.type))
