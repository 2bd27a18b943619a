"""An application that copies a topic exactly once: read, transform, write (confluent-kafka).

It follows librdkafka's documentation: retriable operations are retried, a transaction that
must be aborted is, and after an error that is fatal there is a new producer of the same
transactional id. Whatever it does not commit it reads again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.kafka_clients.confluent_client import make_consumer
from tests.support.kafka_clients.transactional import COPY

T = TypeVar("T")
_PATIENCE = 60.0
_RECONNECTS = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,  # an absent broker causes many log lines
}


class _AbortedError(Exception):
    """The transaction must be aborted."""


class _LostProducerError(Exception):
    """The producer must be replaced."""


class Copier:
    """Copies the records of a topic to the partitions of the same number of another."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        source: str,
        target: str,
        settings: Mapping[str, object],
    ) -> None:
        self._bootstrap = bootstrap
        self._transactional_id = f"of-{group}"
        self._source = source
        self._target = target
        self.committed = 0
        """The number of committed transactions."""
        self._reached: dict[int, int] = {}
        """The offsets that are committed."""
        self._assignment_changed = False
        self._consumer = make_consumer(bootstrap, group, {**_RECONNECTS, **settings})
        self._consumer.subscribe(
            [source], on_assign=self._assigned, on_revoke=self._assigned, on_lost=self._assigned
        )
        self._producer = self._new_producer()

    @property
    def copied(self) -> int:
        """Records of the source that are committed."""
        return sum(self._reached.values())

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment_changed = True

    def close(self) -> None:
        self._consumer.close()
        del self._producer

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._transactional_id,
                "linger.ms": 5,
                "retry.backoff.ms": 20,
                # Else it forgets a broker that is away, but not that this was the coordinator, and
                # send_offsets_to_transaction never comes back (librdkafka's issue 5511).
                "metadata.recovery.strategy": "none",
                **_RECONNECTS,
            }
        )
        _until_done(lambda: producer.init_transactions(_PATIENCE))
        return producer

    def read(self, most: int) -> list[Message]:
        """Returns the next records; fewer or none if no more arrive within a second."""
        messages: list[Message] = []
        while len(messages) < most:
            message = self._consumer.poll(1.0)
            if self._assignment_changed:
                # Reading starts again at the committed offsets.
                self._assignment_changed = False
                messages.clear()
            if message is None:
                break
            if message.error() is None:
                messages.append(message)
        return messages

    def copy(self, messages: Sequence[Message]) -> None:
        """Writes the records and the offsets in one transaction; a failure changes nothing."""
        try:
            self._copy(messages)
        except _AbortedError:
            self._abort()
            self._read_again()
        except _LostProducerError:
            self._producer = self._new_producer()
            self._read_again()
        else:
            self.committed += 1

    def _copy(self, messages: Sequence[Message]) -> None:
        producer = self._producer
        reached = dict(self._reached)
        _until_done(producer.begin_transaction)
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            producer.produce(
                self._target, COPY + (message.value() or b""), message.key(), partition=partition
            )
            reached[partition] = offset + 1
        offsets = [TopicPartition(self._source, *position) for position in reached.items()]
        group = self._consumer.consumer_group_metadata()
        _until_done(lambda: producer.send_offsets_to_transaction(offsets, group, _PATIENCE))
        _until_done(lambda: producer.commit_transaction(_PATIENCE))
        self._reached = reached

    def _abort(self) -> None:
        try:
            _until_done(lambda: self._producer.abort_transaction(_PATIENCE))
        except _LostProducerError:
            self._producer = self._new_producer()

    def _read_again(self) -> None:
        """Seeks to the committed offsets."""
        assignment = self._consumer.assignment()
        for position in _until_done(lambda: self._consumer.committed(assignment, _PATIENCE)):
            self._reached[position.partition] = max(position.offset, 0)
            self._consumer.seek(
                TopicPartition(
                    position.topic, position.partition, self._reached[position.partition]
                )
            )


def _until_done(work: Callable[[], T]) -> T:
    """Returns the result once there is no retriable error any more."""
    while True:
        try:
            return work()
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.fatal():
                raise _LostProducerError from failure
            if error.txn_requires_abort():
                raise _AbortedError from failure
            if not error.retriable():
                raise
