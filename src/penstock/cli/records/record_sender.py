"""Sends the records of the input in bulk, and counts which were acknowledged or failed."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from penstock.cli.records.record_input import Bulk, InputError
from penstock.client.errors import RecordTooLargeError
from penstock.client.producer.future import RecordFuture
from penstock.client.producer.producer import Producer
from penstock.core.errors import KafkaError

_MAX_PENDING = 64
"""The number of bulks that may wait for acknowledgement; usually the memory limits it first."""

Failures: TypeAlias = Callable[[], list[tuple[int, KafkaError]]]
"""Waits, and returns the index and the error of each record of a bulk that failed."""


class SendFuture(Protocol):
    """What both kinds of futures of a producer have in common."""

    def done(self) -> bool: ...


class Failure(NamedTuple):
    where: str
    error: KafkaError


class Pending(NamedTuple):
    bulk: Bulk
    last: SendFuture | None
    failures: Failures


class Sender:
    """Sends bulks, and counts acknowledged and failed records.

    With None as `topic` or `partition` each record has its own; with partition -1 the key decides.
    `failed` is true as soon as one record has failed.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str | None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        on_progress: Callable[[int], None] = lambda steps: None,
    ) -> None:
        self.acknowledged = 0
        self.acknowledged_bytes = 0
        self.failures: list[Failure] = []
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._timestamp = timestamp
        self._on_progress = on_progress
        self._pending: deque[Pending] = deque()

    @property
    def failed(self) -> bool:
        return bool(self.failures)

    def send(self, bulk: Bulk) -> None:
        """Passes the records to the producer. Raises InputError for records without a topic."""
        topic = self._topic or bulk.topic
        if topic is None:
            raise InputError(
                f'{bulk.place(0)} has no "topic", and the command names none',
                remedy="add one of them",
            )
        partition = bulk.partition if self._partition is None else self._partition
        if partition is not None and partition < 0:
            partition = None
        timestamps = bulk.timestamps
        if self._timestamp is not None:
            timestamps = [self._timestamp] * len(bulk.values)
        try:
            future = self._producer.send_many(
                topic,
                bulk.values,
                bulk.keys,
                partition=partition,
                headers=bulk.headers,
                timestamps=timestamps,
            )
        except RecordTooLargeError:
            # Nothing was appended. Sent one by one, only those that are too large fail.
            self._send_each(topic, bulk, partition, timestamps)
        except KafkaError as error:
            failed = [(index, error) for index in range(len(bulk.values))]
            self._pending.append(Pending(bulk, None, lambda: failed))
        else:
            self._pending.append(Pending(bulk, future, future.failures))
        self._collect_done()

    def finish(self) -> None:
        """Waits until every record is acknowledged or has failed."""
        while self._pending:
            self._collect(self._pending.popleft())

    def _send_each(
        self,
        topic: str,
        bulk: Bulk,
        partition: int | None,
        timestamps: Sequence[int] | None,
    ) -> None:
        for index, value in enumerate(bulk.values):
            single = bulk._replace(
                first=bulk.first + index, values=[value], keys=bulk.keys and [bulk.keys[index]]
            )
            try:
                future = self._producer.send(
                    topic,
                    value,
                    key=bulk.keys[index] if bulk.keys is not None else None,
                    headers=bulk.headers,
                    partition=partition,
                    timestamp=None if timestamps is None else timestamps[index],
                )
            except KafkaError as error:
                self._pending.append(Pending(single, None, partial(_as_failures, error)))
            else:
                self._pending.append(Pending(single, future, partial(_failures_of, future)))

    def _collect_done(self) -> None:
        pending = self._pending
        while pending and (
            len(pending) > _MAX_PENDING or pending[0].last is None or pending[0].last.done()
        ):
            self._collect(pending.popleft())

    def _collect(self, pending: Pending) -> None:
        bulk = pending.bulk
        failed = pending.failures()
        self.failures += [Failure(bulk.place(index), error) for index, error in failed]
        good = len(bulk.values) - len(failed)
        self.acknowledged += good
        self.acknowledged_bytes += sum(len(value) for value in bulk.values if value is not None)
        for index, _ in failed:
            self.acknowledged_bytes -= len(bulk.values[index] or b"")
        self._on_progress(good)


def _failures_of(future: RecordFuture) -> list[tuple[int, KafkaError]]:
    error = future.exception()
    return [] if error is None else _as_failures(error)


def _as_failures(error: KafkaError) -> list[tuple[int, KafkaError]]:
    return [(0, error)]
