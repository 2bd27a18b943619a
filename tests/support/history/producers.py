"""Producers of the workload: ours and librdkafka's, idempotent and transactional."""

import threading
from collections.abc import Callable

from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from penstock.client import Producer, RecordMetadata
from penstock.client.errors import KafkaTimeoutError
from penstock.core.errors import KafkaError
from tests.support.history.history import (
    Aborted,
    Acknowledged,
    CommitRequested,
    Committed,
    Failed,
    RecordId,
    Sent,
)
from tests.support.history.workers import (
    CALL_TIMEOUT_S,
    PLAIN,
    TRANSACTIONAL,
    RestartClientError,
    Worker,
)

DELIVERY_TIMEOUT_MS = 150_000
"""Longer than any fault: a record that is not acknowledged in this time proves little."""
REQUEST_TIMEOUT_MS = 3000
TRANSACTION_TIMEOUT_MS = 20_000
MAX_WAITING = 100
LIBRDKAFKA_SETTINGS: dict[str, str | int | float | bool | None] = {
    "log_level": 0,
    "socket.timeout.ms": REQUEST_TIMEOUT_MS + 1000,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.interval.ms": 5000,
}


class IdempotentWorker(Worker):
    """Sends a few records at a time to random partitions, and does not wait for each."""

    def run_client(self) -> None:
        with Producer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS,
        ) as producer:
            waiting = threading.Semaphore(MAX_WAITING)
            while not self.is_stopping:
                for _ in range(self.rng.randint(1, 5)):
                    record, partition = self.next_record(), self.random_partition(PLAIN)
                    if not waiting.acquire(timeout=1):
                        break
                    self.recorder.add(Sent(record, partition))
                    producer.send(
                        PLAIN,
                        self.value_of(record),
                        partition=partition.partition,
                        on_delivery=self._on_delivery(record, waiting),
                    )
                self.pause(self.rng.uniform(0.01, 0.06))

    def _on_delivery(
        self, record: RecordId, waiting: threading.Semaphore
    ) -> Callable[[RecordMetadata | None, KafkaError | None], None]:
        def delivered(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            waiting.release()
            if metadata is not None:
                self.recorder.add(Acknowledged(record, metadata.offset))
            else:
                self.recorder.add(Failed(record, str(error)))

        return delivered


class ConfluentIdempotentWorker(Worker):
    """The same with librdkafka, one request at a time.

    With several requests in flight, librdkafka starts a new epoch for all partitions when one of
    them refuses a batch for lack of room and the next batch as out of order. It then sends again,
    in the new epoch, what other partitions have written without a response: doubled records.
    """

    def run_client(self) -> None:
        self._fatal_error: ConfluentError | None = None
        producer = ConfluentProducer(
            {
                **LIBRDKAFKA_SETTINGS,
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "max.in.flight": 1,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "linger.ms": 5,
                "error_cb": self._on_error,
            }
        )
        try:
            while not self.is_stopping and self._fatal_error is None:
                for _ in range(self.rng.randint(1, 5)):
                    record, partition = self.next_record(), self.random_partition(PLAIN)
                    self.recorder.add(Sent(record, partition))
                    producer.produce(
                        PLAIN,
                        self.value_of(record),
                        partition=partition.partition,
                        on_delivery=self._on_delivery(record),
                    )
                producer.poll(0)
                while len(producer) > MAX_WAITING and not self.is_stopping:
                    producer.poll(0.1)
                self.pause(self.rng.uniform(0.01, 0.06))
        finally:
            producer.flush(DELIVERY_TIMEOUT_MS / 1000)
        if self._fatal_error is not None:
            raise KafkaException(self._fatal_error)

    def _on_error(self, error: ConfluentError) -> None:
        if error.fatal():
            self._fatal_error = error

    def _on_delivery(self, record: RecordId) -> Callable[[ConfluentError | None, Message], None]:
        return lambda error, message: self.recorder.add(_delivery(record, error, message))


def _delivery(
    record: RecordId, error: ConfluentError | None, message: Message
) -> Acknowledged | Failed:
    if error is not None:
        return Failed(record, str(error))
    offset = message.offset()
    return Acknowledged(record, -1 if offset is None else offset)


class TransactionalWorker(Worker):
    """Writes transactions over several partitions, and aborts every fourth."""

    def run_client(self) -> None:
        with Producer(
            bootstrap_servers=self.bootstrap,
            transactional_id=self.base_name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            delivery_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            max_block_ms=int(CALL_TIMEOUT_S * 1000),
        ) as producer:
            producer.init_transactions()
            number = 0
            while not self.is_stopping:
                number += 1
                self._run_transaction(producer, f"{self.name}/{number}")
                self.pause(self.rng.uniform(0.01, 0.1))

    def _run_transaction(self, producer: Producer, transaction: str) -> None:
        producer.begin_transaction()
        try:
            for _ in range(self.rng.randint(1, 6)):
                record, partition = self.next_record(), self.random_partition(TRANSACTIONAL)
                self.recorder.add(Sent(record, partition, transaction))
                producer.send(TRANSACTIONAL, self.value_of(record), partition=partition.partition)
                if self.rng.random() < 0.2:
                    producer.flush(CALL_TIMEOUT_S)
            if self.rng.random() < 0.75:
                self.recorder.add(CommitRequested(transaction))
                self.retry(producer.commit_transaction, _is_timeout)
                self.recorder.add(Committed(transaction))
                return
        except KafkaError as error:
            self.recorder.note(f"{transaction} fails: {error!r}")
        self.retry(producer.abort_transaction, _is_timeout)
        self.recorder.add(Aborted(transaction))


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, KafkaTimeoutError)


class ConfluentTransactionalWorker(Worker):
    """The same with librdkafka."""

    flushes_before_abort = False

    def run_client(self) -> None:
        producer = ConfluentProducer(
            {
                **LIBRDKAFKA_SETTINGS,
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.base_name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        self.retry(lambda: producer.init_transactions(CALL_TIMEOUT_S), _is_retriable)
        number = 0
        while not self.is_stopping:
            number += 1
            self._run_transaction(producer, f"{self.name}/{number}")
            self.pause(self.rng.uniform(0.01, 0.1))

    def _run_transaction(self, producer: ConfluentProducer, transaction: str) -> None:
        producer.begin_transaction()
        try:
            for _ in range(self.rng.randint(1, 6)):
                record, partition = self.next_record(), self.random_partition(TRANSACTIONAL)
                self.recorder.add(Sent(record, partition, transaction))
                producer.produce(
                    TRANSACTIONAL, self.value_of(record), partition=partition.partition
                )
                producer.poll(0)
            if self.rng.random() < 0.75:
                self.recorder.add(CommitRequested(transaction))
                self.retry(lambda: producer.commit_transaction(CALL_TIMEOUT_S), _is_retriable)
                self.recorder.add(Committed(transaction))
                return
            if self.flushes_before_abort:
                producer.flush(CALL_TIMEOUT_S)
        except KafkaException as raised:
            error: ConfluentError = raised.args[0]
            self.recorder.note(f"{transaction} fails: {error!r}")
            if not error.txn_requires_abort():
                raise RestartClientError(str(error)) from raised
        self.retry(lambda: producer.abort_transaction(CALL_TIMEOUT_S), _is_retriable)
        self.recorder.add(Aborted(transaction))


def _is_retriable(error: Exception) -> bool:
    return isinstance(error, KafkaException) and bool(error.args[0].retriable())
