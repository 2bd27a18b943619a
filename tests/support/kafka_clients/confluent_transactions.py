"""Transactions of confluent-kafka: librdkafka, from Python."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.kafka_clients.confluent_client import TIMEOUT, client_error, make_consumer, read
from tests.support.kafka_clients.model import Record
from tests.support.kafka_clients.transactional import (
    COPY,
    TRANSACTION_SECONDS,
    Reader,
    TransactionalClient,
    TransactionalProducer,
)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise client_error(error.args[0]) from None


class _Producer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout: float) -> None:
        self._errors: list[KafkaError] = []
        self.inner = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(timeout * 1000),
                # At most the transaction timeout; otherwise the client rejects the settings.
                "message.timeout.ms": int(min(timeout, TIMEOUT) * 1000),
                "linger.ms": 0,
                "log_level": 0,  # a fenced producer logs much
            }
        )
        with _errors():
            self.inner.init_transactions(TIMEOUT)

    def begin(self) -> None:
        with _errors():
            self.inner.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        self._errors.clear()
        with _errors():
            for record in records:
                self.inner.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                    on_delivery=self._delivered,
                )
        undelivered = self.inner.flush(TIMEOUT)
        if self._errors:
            raise client_error(self._errors[0])
        if undelivered:
            raise AssertionError(f"{undelivered} records were never acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def commit(self) -> None:
        with _errors():
            self.inner.commit_transaction(TIMEOUT)

    def abort(self) -> None:
        with _errors():
            self.inner.abort_transaction(TIMEOUT)

    def close(self) -> None:
        del self.inner  # which ends it


class _Reader(Reader):
    def __init__(
        self, bootstrap: str, topic: str, partitions: Sequence[int], isolation: str
    ) -> None:
        super().__init__()
        self._consumer = make_consumer(bootstrap, "without-a-group", {"isolation.level": isolation})
        # Without this the first look for a leader finds none, and the next is 0.5 s later.
        self._consumer.list_topics(topic, timeout=TIMEOUT)
        self._consumer.assign(
            [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
        )

    def more(self, count: int) -> list[Record]:
        return read(self._consumer, count)

    def close(self) -> None:
        self._consumer.close()


class ConfluentTransactions(TransactionalClient):
    name = "confluent-kafka"

    def producer(
        self, bootstrap: str, transactional_id: str, *, timeout: float = TRANSACTION_SECONDS
    ) -> TransactionalProducer:
        return _Producer(bootstrap, transactional_id, timeout)

    def reader(
        self, bootstrap: str, topic: str, partitions: Sequence[int], *, committed: bool = True
    ) -> Reader:
        isolation = "read_committed" if committed else "read_uncommitted"
        return _Reader(bootstrap, topic, partitions, isolation)

    def transform(
        self, bootstrap: str, group: str, source: str, target: str, count: int, *, commit: bool
    ) -> None:
        with (
            _Producer(bootstrap, f"of-{group}", TRANSACTION_SECONDS) as producer,
            closing(make_consumer(bootstrap, group)) as consumer,
        ):
            consumer.subscribe([source])
            records = read(consumer, count)
            producer.begin()
            producer.send(
                target, [record._replace(value=COPY + (record.value or b"")) for record in records]
            )
            with _errors():
                producer.inner.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()),
                    consumer.consumer_group_metadata(),
                    TIMEOUT,
                )
            if commit:
                producer.commit()
            else:
                producer.abort()
