"""Records that could not be read, in a topic (D5), each exactly once.

Their place of origin is their identity: `topic`, `partition` and `offset` are in the headers. What
is below the offsets of the last batch that had some was written before, and is left out when a
batch, or everything, is read again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core.ids import TopicPartition
from penstock.spark.exactly_once import other_topics
from penstock.spark.progress import Batch, SourceOffsets, Stored
from penstock.spark.sinks.ledger import Entry
from penstock.spark.sinks.transactions import Tick, Transactions

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.producer.producer import Producer

SUFFIX = ".dead-letters"


class DeadLetterTopic:
    """For sinks that cannot store dead letters with their results.

    Results and dead letters are two transactions then: write the dead letters first. A crash in
    between makes the batch run again, and finds them written.

    `key` is that of the query, `client` has Kafka's dotted names.
    """

    def __init__(self, topic: str, key: str, client: Mapping[str, str]) -> None:
        self._topic = topic
        self._pipeline = pipeline_of(key)
        self._transactions = Transactions(client, key + SUFFIX)
        self._owner = ""
        self._entry: Entry | None = None

    def open(self, owner: str) -> None:
        """Take it over from whoever had it: `FencedError` for them from here on."""
        self._owner = owner
        self._entry = self._transactions.open()

    def write(self, dead_letters: "pa.Table", batch: Batch) -> int:
        """Write those that were not written before, in one transaction; how many."""
        fresh = unseen(dead_letters, self._entry)
        if fresh.num_rows == 0:
            return 0
        entry = advanced(self._entry, batch, self._owner, fresh.num_rows)

        def work(producer: "Producer", tick: Tick) -> None:
            send_dead_letters(producer, fresh, self._topic, self._pipeline)
            tick()

        self._transactions.run(work, {self._transactions.key: entry})
        self._entry = entry
        return int(fresh.num_rows)

    def close(self) -> None:
        self._transactions.close()


def pipeline_of(key: str) -> str:
    """The pipeline's name in the key of a query."""
    return key.rpartition(".")[0] or key


def advanced(entry: Entry | None, batch: Batch, owner: str, rows: int) -> Entry:
    """What is stored with the dead letters of a batch: it never goes back.

    After a rebuild a batch ends before offsets whose dead letters were written long ago.
    """
    known = entry.stored.progress if entry is not None and entry.stored is not None else {}
    progress = dict(known)
    for name, end in batch.end.items():
        before = known.get(name, SourceOffsets({}))
        replaced = other_topics(before, end)
        offsets = {
            each: offset for each, offset in before.offsets.items() if each.topic not in replaced
        }
        for each, offset in end.offsets.items():
            offsets[each] = max(offset, offsets.get(each, 0))
        progress[name] = SourceOffsets(offsets, {**before.topic_ids, **end.topic_ids}, end.source)
    return Entry(Stored(progress, batch.query_id, batch.batch_id), owner, rows)


def unseen(dead_letters: "pa.Table", entry: Entry | None) -> "pa.Table":
    """Those at or behind the stored offsets. A topic that was made again has none of them."""
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
        keep.append(is_other_topic or row["offset"] >= stored)
    return dead_letters.filter(pa.array(keep, pa.bool_()))


def send_dead_letters(
    producer: "Producer", dead_letters: "pa.Table", topic: str, pipeline: str
) -> None:
    """As records with their own key and value; headers say where they are from, and what is wrong
    with them."""
    from penstock.spark.decode.dead_letters import to_records

    for key, value, headers in to_records(dead_letters, pipeline):
        producer.send(topic, value, key=key, headers=headers)
