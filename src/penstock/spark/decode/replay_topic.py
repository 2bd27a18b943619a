"""Replay from a dead-letter topic.

The ledger keeps up to where it was replayed, and so does a group of the same name, for tools that
show lag. What lies before that was sent: a dead letter whose origin is among it is the same record
again, from another sink of the pipeline, and is left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import new_admin, new_consumer
from penstock.spark.decode.dead_letters import DeadLetter, Origin, from_record
from penstock.spark.decode.replay import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    ReplayResult,
    Step,
    Targets,
    client_settings,
    count,
    replay_key,
)
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.progress import SourceOffsets, StoredProgress
from penstock.spark.sinks.topic.ledger import Ledger, LedgerEntry
from penstock.spark.sinks.topic.transactions import CheckDeadline, Transactions
from penstock.spark.source.topic_ids import to_text

if TYPE_CHECKING:
    from penstock.client.consumer.record import ConsumerRecord
    from penstock.client.producer.producer import Producer

_DEAD_LETTERS = "dead-letters"
_POLL_S = 0.5
_PATIENCE_POLLS = 240


@dataclass
class _Chunk:
    letters: list[DeadLetter] = field(default_factory=list)
    size: int = 0
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.letters) >= CHUNK_RECORDS or self.size >= CHUNK_BYTES


def replay_topic(
    spec: PipelineSpec,
    topic: str,
    *,
    to: str | None,
    limit: int | None,
    dry_run: bool,
    step: Step,
) -> ReplayResult:
    key = replay_key(spec)
    client = client_settings(spec)
    topic_id = _topic_id(client, topic)
    if dry_run:
        with Ledger(client) as ledger:
            entry = ledger.read(key)
        return _Run(spec, topic, topic_id, entry, to, limit).look()
    transactions = Transactions(client, key)
    try:
        entry = transactions.open()
        return _Run(spec, topic, topic_id, entry, to, limit).send(transactions, step)
    finally:
        transactions.close()


class _Run:
    def __init__(
        self,
        spec: PipelineSpec,
        topic: str,
        topic_id: str,
        entry: LedgerEntry | None,
        to: str | None,
        limit: int | None,
    ) -> None:
        self._spec = spec
        self._topic = topic
        self._topic_id = topic_id
        self._to = to
        self._limit = limit
        self._entry = entry or LedgerEntry(None)
        self._done = _done(self._entry, topic_id, topic)
        self._sent: set[Origin] = set()
        self.result = ReplayResult()

    def look(self) -> ReplayResult:
        self.result.is_dry_run = True
        for chunk in self._chunks():
            count(self.result, chunk.letters, self._to)
        return self.result

    def send(self, transactions: Transactions, step: Step) -> ReplayResult:
        targets = Targets(client_settings(self._spec), self._to)
        for chunk in self._chunks():
            targets.check(chunk.letters)
            self._done = {**self._done, **chunk.next_offsets}
            progress = {
                _DEAD_LETTERS: SourceOffsets(
                    self._done, {self._topic: self._topic_id} if self._topic_id else {}
                )
            }
            entry = LedgerEntry(
                StoredProgress(progress),
                rows=len(chunk.letters),
                fingerprint=self._entry.fingerprint,
            )

            def work(
                producer: "Producer", check_deadline: CheckDeadline, chunk: _Chunk = chunk
            ) -> None:
                targets.send(producer, chunk.letters)
                step("sent")
                check_deadline()
                producer.send_offsets_to_transaction(chunk.next_offsets, replay_key(self._spec))
                step("offsets")

            transactions.run(work, {transactions.key: entry})
            step("committed")
            count(self.result, chunk.letters, self._to)
        return self.result

    def _chunks(self) -> Iterator[_Chunk]:
        """Those behind what is done, in chunks, up to the end of the topic when this began."""
        chunk = _Chunk()
        taken = 0
        for record in self._records():
            place = TopicPartition(record.topic, record.partition)
            is_done = record.offset < self._done.get(place, 0)
            letter = from_record(record)
            if letter is None or letter.pipeline != self._spec.name:
                self.result.foreign += 0 if is_done else 1
            elif letter.origin in self._sent:
                self.result.repeated += 0 if is_done else 1
            else:
                if not is_done:
                    if taken == self._limit:
                        break
                    taken += 1
                    chunk.letters.append(letter)
                    chunk.size += len(letter.value or b"") + len(letter.key or b"")
                self._sent.add(letter.origin)
            if not is_done:
                chunk.next_offsets[place] = record.offset + 1
            if chunk.is_full:
                yield chunk
                chunk = _Chunk()
        if chunk.next_offsets:
            yield chunk

    def _records(self) -> "Iterator[ConsumerRecord]":
        """All that the topic holds now, first what is done: a record that is there twice must be
        known by then."""
        with new_consumer(
            client_settings(self._spec),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            places = [
                TopicPartition(self._topic, each.partition)
                for each in consumer.partitions_for(self._topic)
            ]
            starts = consumer.beginning_offsets(places)
            ends = consumer.end_offsets(places)
            done = {each: min(self._done.get(each, 0), ends[each]) for each in places}
            for first, last in ((starts, done), (done, ends)):
                for place in places:
                    begin = max(first[place], starts[place])
                    if begin >= last[place]:
                        continue
                    consumer.assign([place])
                    consumer.seek(place, begin)
                    empty = 0
                    while consumer.position(place) < last[place]:
                        found = consumer.poll(_POLL_S)
                        empty = 0 if found else empty + 1
                        if empty > _PATIENCE_POLLS:
                            raise PipelineError(
                                f"{place} could not be read up to offset {last[place]}: does the "
                                "broker answer?"
                            )
                        yield from (each for each in found if each.offset < last[place])


def _topic_id(client: Mapping[str, str], topic: str) -> str:
    admin = new_admin(client)
    try:
        return to_text(admin.describe_topics([topic])[topic].topic_id)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise PipelineError(
            f"there is no dead-letter topic {topic}: no record was ever put there"
        ) from error
    finally:
        admin.close()


def _done(entry: LedgerEntry, topic_id: str, topic: str) -> dict[TopicPartition, int]:
    """The next offset of each partition; none of a topic that was made again since."""
    stored = entry.stored
    offsets = None if stored is None else stored.progress.get(_DEAD_LETTERS)
    if offsets is None or offsets.topic_ids.get(topic, topic_id) != topic_id:
        return {}
    return {each: at for each, at in offsets.offsets.items() if each.topic == topic}
