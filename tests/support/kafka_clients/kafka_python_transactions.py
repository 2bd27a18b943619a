"""Transactions of kafka-python."""

from collections.abc import Sequence
from contextlib import closing

# Before the import of kafka itself: this module ignores its warnings.
from tests.support.kafka_clients.kafka_python_client import (
    TIMEOUT,
    client_errors,
    make_consumer,
    read,
    subscribe,
)
from tests.support.kafka_clients.model import Record
from tests.support.kafka_clients.transactional import (
    COPY,
    TRANSACTION_SECONDS,
    Reader,
    TransactionalClient,
    TransactionalProducer,
)

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition  # isort: skip


class _Producer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout: float) -> None:
        self.inner = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(timeout * 1000),
            max_block_ms=int(TIMEOUT * 1000),
            retry_backoff_ms=20,
        )
        with client_errors():
            self.inner.init_transactions()

    def begin(self) -> None:
        with client_errors():
            self.inner.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        with client_errors():
            sent = [
                self.inner.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            self.inner.flush(TIMEOUT)
            for future in sent:
                future.get(TIMEOUT)

    def commit(self) -> None:
        with client_errors():
            self.inner.commit_transaction()

    def abort(self) -> None:
        with client_errors():
            self.inner.abort_transaction()

    def close(self) -> None:
        self.inner.close(timeout=0)


class _Reader(Reader):
    def __init__(
        self, bootstrap: str, topic: str, partitions: Sequence[int], isolation: str
    ) -> None:
        super().__init__()
        self._consumer = make_consumer(bootstrap, None, isolation)
        self._consumer.assign([TopicPartition(topic, partition) for partition in partitions])
        self._consumer.seek_to_beginning()

    def more(self, count: int) -> list[Record]:
        with client_errors():
            return read(self._consumer, count)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonTransactions(TransactionalClient):
    name = "kafka-python"

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
            closing(make_consumer(bootstrap, group, "read_committed")) as consumer,
        ):
            subscribe(consumer, source)
            records = read(consumer, count)
            producer.begin()
            producer.send(
                target, [record._replace(value=COPY + (record.value or b"")) for record in records]
            )
            reached = {
                topic_partition: OffsetAndMetadata(consumer.position(topic_partition), "", -1)
                for topic_partition in consumer.assignment()
            }
            with client_errors():
                producer.inner.send_offsets_to_transaction(reached, consumer.group_metadata())
            if commit:
                producer.commit()
            else:
                producer.abort()
