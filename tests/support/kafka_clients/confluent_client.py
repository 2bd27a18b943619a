"""confluent-kafka: librdkafka, from Python."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.kafka_clients.model import (
    NO_OFFSET,
    Acks,
    AdminClient,
    ClientError,
    GroupRead,
    Header,
    Record,
)

T = TypeVar("T")

TIMEOUT = 20.0
UNKNOWN_TOPIC_OR_PARTITION = 3
PRODUCER_FENCED = 90


class ConfluentClient(AdminClient):
    name = "confluent-kafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
        auto_create: bool = False,
        timeout: float = TIMEOUT,
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "allow.auto.create.topics": auto_create,
                "topic.metadata.propagation.max.ms": int(timeout * 1000),
                "message.max.bytes": 4 << 20,
                "max.in.flight": 5 if idempotent else 1,  # or a retry changes the order
            }
        )
        offsets = [NO_OFFSET] * len(records)
        errors: list[KafkaError] = []

        def delivery_of(index: int) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    errors.append(error)
                elif acks != "0":
                    offsets[index] = message.offset() or 0

            return delivered

        for index, record in enumerate(records):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
                on_delivery=delivery_of(index),
            )
        undelivered = producer.flush(timeout + TIMEOUT)
        if errors:
            raise client_error(errors[0])
        if undelivered:
            raise AssertionError(f"{undelivered} records were never acknowledged")
        return offsets

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int], count: int
    ) -> list[Record]:
        consumer = make_consumer(bootstrap, "without-a-group")
        try:
            # Without this the first look for a leader finds none, and the next is 0.5 s later.
            consumer.list_topics(topic, timeout=TIMEOUT)
            consumer.assign(
                [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
            )
            return read(consumer, count)
        finally:
            consumer.close()

    def consume_group(self, bootstrap: str, topic: str, group: str, count: int) -> GroupRead:
        consumer = make_consumer(bootstrap, group)
        try:
            consumer.subscribe([topic])
            records = read(consumer, count)
            consumer.commit(asynchronous=False)
            committed = consumer.committed(consumer.assignment(), timeout=TIMEOUT)
        finally:
            consumer.close()
        return GroupRead(records, {offset.partition: offset.offset for offset in committed})

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        consumer = make_consumer(bootstrap, "without-a-group")
        try:
            [result] = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp)], timeout=TIMEOUT
            )
        finally:
            consumer.close()
        return result.offset if result.offset >= 0 else NO_OFFSET

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(configs))
        admin = make_admin(bootstrap)  # in a variable, because its requests end with it
        result_of(admin.create_topics([new])[topic])

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Raises the number of partitions."""
        admin = make_admin(bootstrap)
        result_of(admin.create_partitions([NewPartitions(topic, partitions)])[topic])

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        admin = make_admin(bootstrap)
        result_of(admin.delete_topics([topic])[topic])

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        admin = make_admin(bootstrap)
        entries = result_of(admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> dict[int, int]:
        """Returns the committed offsets of a group without joining it."""
        consumer = make_consumer(bootstrap, group)
        try:
            topic_partitions = [TopicPartition(topic, index) for index in range(partitions)]
            result = consumer.committed(topic_partitions, timeout=TIMEOUT)
        finally:
            consumer.close()
        return {position.partition: position.offset for position in result if position.offset >= 0}

    def topics(self, bootstrap: str) -> set[str]:
        return set(make_admin(bootstrap).list_topics(timeout=TIMEOUT).topics)

    def partitions(self, bootstrap: str, topic: str) -> int:
        return len(
            make_admin(bootstrap).list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
        )

    def end_offset(self, bootstrap: str, topic: str, partition: int) -> int:
        consumer = make_consumer(bootstrap, "without-a-group")
        try:
            _, end = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=TIMEOUT
            )
        finally:
            consumer.close()
        return int(end)


def client_error(error: KafkaError) -> ClientError:
    code = error.code()
    # librdkafka's own code for a topic that the broker does not have.
    if code in (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        code = UNKNOWN_TOPIC_OR_PARTITION
    elif code == KafkaError._FENCED:  # and for a fenced producer
        code = PRODUCER_FENCED
    elif code == KafkaError._FATAL:  # only the text contains the broker's error
        code = next(index for index in range(1, 200) if KafkaError(index).str() in error.str())
    return ClientError(code, error.str())


def result_of(future: Future[T]) -> T:
    try:
        return future.result(TIMEOUT)
    except KafkaException as error:
        raise client_error(error.args[0]) from None


def make_admin(bootstrap: str) -> confluent_admin.AdminClient:
    return confluent_admin.AdminClient({"bootstrap.servers": bootstrap})


def make_consumer(
    bootstrap: str, group: str, settings: Mapping[str, object] | None = None
) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            **(settings or {}),
        }
    )


def read(consumer: Consumer, count: int) -> list[Record]:
    records: list[Record] = []
    deadline = time.monotonic() + TIMEOUT
    while len(records) < count:
        message = consumer.poll(max(0.0, deadline - time.monotonic()))
        if message is None:
            raise AssertionError(f"only {len(records)} of {count} records came")
        if (error := message.error()) is not None:
            raise client_error(error)
        records.append(record_of(message))
    return records


def record_of(message: Message) -> Record:
    return Record(
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
        partition=message.partition() or 0,
        timestamp=message.timestamp()[1],
        offset=message.offset() or 0,
    )


def _headers(message: Message) -> tuple[Header, ...]:
    headers = message.headers() or []
    assert isinstance(headers, list)
    return tuple((name, value if value is None else _bytes(value)) for name, value in headers)


def _bytes(value: str | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value
