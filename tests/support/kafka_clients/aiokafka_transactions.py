"""Transactions of aiokafka. Its event loop runs while there is something to do."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.kafka_clients.aiokafka_client import TIMEOUT, client_errors, make_consumer, read
from tests.support.kafka_clients.model import Record
from tests.support.kafka_clients.transactional import (
    COPY,
    TRANSACTION_SECONDS,
    Reader,
    TransactionalClient,
    TransactionalProducer,
)

T = TypeVar("T")


class _Loop:
    """An event loop that runs for as long as an operation takes, and has the client's errors."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            async with client_errors(), asyncio.timeout(TIMEOUT):
                return await work()

        return self._runner.run(run())

    def close(self) -> None:
        self._runner.close()


def _producer(bootstrap: str, transactional_id: str, timeout: float) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=int(timeout * 1000),
        retry_backoff_ms=20,
    )


async def _send(producer: AIOKafkaProducer, topic: str, records: Sequence[Record]) -> None:
    sent = [
        await producer.send(
            topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp,
            headers=list(record.headers),
        )
        for record in records
    ]
    await asyncio.gather(*sent)


class _Producer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout: float) -> None:
        self._loop = _Loop()

        async def start() -> AIOKafkaProducer:
            producer = _producer(bootstrap, transactional_id, timeout)
            await producer.start()
            return producer

        self._inner = self._loop.run(start)

    def begin(self) -> None:
        self._loop.run(self._inner.begin_transaction)

    def send(self, topic: str, records: Sequence[Record]) -> None:
        self._loop.run(lambda: _send(self._inner, topic, records))

    def commit(self) -> None:
        self._loop.run(self._inner.commit_transaction)

    def abort(self) -> None:
        self._loop.run(self._inner.abort_transaction)

    def close(self) -> None:
        self._loop.run(self._inner.stop)
        self._loop.close()


class _Reader(Reader):
    def __init__(
        self, bootstrap: str, topic: str, partitions: Sequence[int], isolation: str
    ) -> None:
        super().__init__()
        self._loop = _Loop()

        async def start() -> AIOKafkaConsumer:
            consumer = make_consumer(bootstrap, None, isolation)
            await consumer.start()
            consumer.assign([TopicPartition(topic, partition) for partition in partitions])
            await consumer.seek_to_beginning()
            return consumer

        self._consumer = self._loop.run(start)

    def more(self, count: int) -> list[Record]:
        return self._loop.run(lambda: read(self._consumer, count))

    def close(self) -> None:
        self._loop.run(self._consumer.stop)
        self._loop.close()


class AiokafkaTransactions(TransactionalClient):
    name = "aiokafka"

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
        async def run() -> None:
            async with (
                client_errors(),
                _producer(bootstrap, f"of-{group}", TRANSACTION_SECONDS) as producer,
                make_consumer(bootstrap, group, "read_committed") as consumer,
            ):
                consumer.subscribe([source])
                records = await read(consumer, count)
                await producer.begin_transaction()
                copies = [record._replace(value=COPY + (record.value or b"")) for record in records]
                await _send(producer, target, copies)
                reached = {
                    topic_partition: await consumer.position(topic_partition)
                    for topic_partition in consumer.assignment()
                }
                await producer.send_offsets_to_transaction(reached, group)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

        asyncio.run(run())
