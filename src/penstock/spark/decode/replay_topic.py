"""Replaying a dead-letter topic.

The ledger stores the offsets up to which the topic was replayed, and a group of the same name shows
them as lag. Dead letters before these offsets were sent. A later one with the same origin is the
same record, reported by another sink of the pipeline, and is not sent again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.ids import TopicPartition
from penstock.spark.clients import describe_topic
from penstock.spark.decode.dead_letters import DeadLetter, Origin, from_record
from penstock.spark.decode.replay import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    ReplayOptions,
    ReplayResult,
    ReplayTargets,
    replay_key,
)
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.progress import SourceOffsets, StoredProgress
from penstock.spark.sinks.topic.ledger import (
    Ledger,
    LedgerEntry,
    committed_consumer,
    committed_records,
)
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions
from penstock.spark.source.topic_ids import to_text

if TYPE_CHECKING:
    from penstock.client.consumer.record import ConsumerRecord
    from penstock.client.producer.producer import Producer

_DEAD_LETTERS = "dead-letters"


@dataclass
class _Chunk:
    """Dead letters for one transaction."""

    letters: list[DeadLetter] = field(default_factory=list)
    size: int = 0
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.letters) >= CHUNK_RECORDS or self.size >= CHUNK_BYTES


def replay_topic(spec: PipelineSpec, topic: str, options: ReplayOptions) -> ReplayResult:
    """Sends the dead letters of the topic: see `replay`."""
    key = replay_key(spec)
    client = spec.client_settings
    description = describe_topic(client, topic)
    if description is None:
        raise PipelineError(
            f"there is no dead-letter topic {topic}: no record was ever written to it"
        )
    topic_id = to_text(description.topic_id)
    if options.dry_run:
        with Ledger(client) as ledger:
            entry = ledger.read(key)
        return _TopicReplay(spec, topic, topic_id, entry, options).count()
    transactions = Transactions(client, key)
    try:
        entry = transactions.open()
        return _TopicReplay(spec, topic, topic_id, entry, options).send(transactions)
    finally:
        transactions.close()


class _TopicReplay:
    def __init__(
        self,
        spec: PipelineSpec,
        topic: str,
        topic_id: str,
        entry: LedgerEntry | None,
        options: ReplayOptions,
    ) -> None:
        self._spec = spec
        self._topic = topic
        self._topic_id = topic_id
        self._options = options
        self._entry = entry or LedgerEntry(None)
        self._replayed_offsets = _replayed_offsets(self._entry, topic_id, topic)
        self._sent_origins: set[Origin] = set()
        self.result = ReplayResult(is_dry_run=options.dry_run)

    def count(self) -> ReplayResult:
        """Counts what `send` would send."""
        for chunk in self._chunks():
            self.result.count(chunk.letters, self._options.to)
        return self.result

    def send(self, transactions: Transactions) -> ReplayResult:
        """Sends all dead letters, each chunk in a transaction with its progress."""
        on_step = self._options.on_step
        targets = ReplayTargets(self._spec.client_settings, self._options.to)
        for chunk in self._chunks():
            targets.check(chunk.letters)
            self._replayed_offsets = {**self._replayed_offsets, **chunk.next_offsets}
            topic_ids = {self._topic: self._topic_id} if self._topic_id else {}
            progress = {_DEAD_LETTERS: SourceOffsets(self._replayed_offsets, topic_ids)}
            entry = LedgerEntry(
                StoredProgress(progress),
                rows=len(chunk.letters),
                fingerprint=self._entry.fingerprint,
            )

            def work(
                producer: "Producer", check_deadline: CheckDeadline, chunk: _Chunk = chunk
            ) -> None:
                targets.send(producer, chunk.letters)
                on_step("sent")
                check_deadline()
                producer.send_offsets_to_transaction(chunk.next_offsets, replay_key(self._spec))
                on_step("offsets")

            transactions.run(work, {transactions.key: entry})
            on_step("committed")
            self.result.count(chunk.letters, self._options.to)
        return self.result

    def _chunks(self) -> Iterator[_Chunk]:
        """Yields the dead letters that were not replayed, up to the topic's end at the start."""
        chunk = _Chunk()
        taken = 0
        for record in self._records():
            partition = TopicPartition(record.topic, record.partition)
            is_replayed = record.offset < self._replayed_offsets.get(partition, 0)
            letter = from_record(record)
            if letter is None or letter.pipeline != self._spec.name:
                self.result.foreign += 0 if is_replayed else 1
            elif letter.origin in self._sent_origins:
                self.result.repeated += 0 if is_replayed else 1
            else:
                if not is_replayed:
                    if taken == self._options.limit:
                        break
                    taken += 1
                    chunk.letters.append(letter)
                    chunk.size += len(letter.value or b"") + len(letter.key or b"")
                self._sent_origins.add(letter.origin)
            if not is_replayed:
                chunk.next_offsets[partition] = record.offset + 1
            if chunk.is_full:
                yield chunk
                chunk = _Chunk()
        if chunk.next_offsets:
            yield chunk

    def _records(self) -> "Iterator[ConsumerRecord]":
        """Yields all records of the topic, those first that were replayed.

        Their origins must be known before the others are read, to recognize repeated ones.
        """
        with committed_consumer(self._spec.client_settings) as consumer:
            partitions = [
                TopicPartition(self._topic, info.partition)
                for info in consumer.partitions_for(self._topic)
            ]
            starts = consumer.beginning_offsets(partitions)
            ends = consumer.end_offsets(partitions)
            replayed = {p: min(self._replayed_offsets.get(p, 0), ends[p]) for p in partitions}
            for first_offsets, end_offsets in ((starts, replayed), (replayed, ends)):
                for partition in partitions:
                    first = max(first_offsets[partition], starts[partition])
                    yield from committed_records(consumer, partition, first, end_offsets[partition])


def _replayed_offsets(entry: LedgerEntry, topic_id: str, topic: str) -> dict[TopicPartition, int]:
    """Returns the next offset of each partition; none if the topic was recreated since."""
    stored = entry.stored
    offsets = None if stored is None else stored.progress.get(_DEAD_LETTERS)
    if offsets is None or offsets.topic_ids.get(topic, topic_id) != topic_id:
        return {}
    return {p: offset for p, offset in offsets.offsets.items() if p.topic == topic}
