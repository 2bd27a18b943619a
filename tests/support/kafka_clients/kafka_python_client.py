"""kafka-python."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from tests.support.kafka_clients.model import (
    NO_CODE,
    NO_OFFSET,
    Acks,
    AdminClient,
    ClientError,
    GroupRead,
    Record,
)

with warnings.catch_warnings():
    # It loads its schemas with an API that is deprecated in Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource
    from kafka.admin import KafkaAdminClient as KafkaAdminClient
    from kafka.errors import KafkaError, KafkaTimeoutError

TIMEOUT = 20.0


class KafkaPythonClient(AdminClient):
    name = "kafka-python"
    writes_null_headers = False
    unknown_topic_code = NO_CODE  # it reports only a timeout

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
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            allow_auto_create_topics=auto_create,
            max_block_ms=int(timeout * 1000),
            max_request_size=4 << 20,
            max_in_flight_requests_per_connection=5 if idempotent else 1,
            linger_ms=5,
        )
        with closing(producer), client_errors():
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(TIMEOUT)
            results = [future.get(TIMEOUT) for future in sent]
        return [NO_OFFSET if acks == "0" else result.offset for result in results]

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int], count: int
    ) -> list[Record]:
        with closing(make_consumer(bootstrap, None)) as consumer, client_errors():
            consumer.assign([TopicPartition(topic, partition) for partition in partitions])
            consumer.seek_to_beginning()
            return read(consumer, count)

    def consume_group(self, bootstrap: str, topic: str, group: str, count: int) -> GroupRead:
        with closing(make_consumer(bootstrap, group)) as consumer, client_errors():
            subscribe(consumer, topic)
            records = read(consumer, count)
            consumer.commit()
            committed = {
                topic_partition.partition: consumer.committed(topic_partition)
                for topic_partition in consumer.assignment()
            }
        return GroupRead(records, committed)

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        topic_partition = TopicPartition(topic, partition)
        with closing(make_consumer(bootstrap, None)) as consumer, client_errors():
            result = consumer.offsets_for_times({topic_partition: timestamp})[topic_partition]
        return NO_OFFSET if result is None else int(result.offset)

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        new_topic = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": dict(configs),
        }
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin, client_errors():
            admin.create_topics({topic: new_topic})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin, client_errors():
            admin.delete_topics([topic])

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin, client_errors():
            configs = admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")
        return {name: config["value"] for name, config in configs["topic"][topic].items()}


@contextmanager
def client_errors() -> Iterator[None]:
    """Turns the client's own exceptions into ours."""
    try:
        yield
    except KafkaError as error:
        raise ClientError(_code(error), repr(error)) from error


def _code(error: KafkaError) -> int:
    if isinstance(error, KafkaTimeoutError):
        return NO_CODE
    return int(getattr(error, "errno", NO_CODE))


def make_consumer(
    bootstrap: str, group: str | None, isolation: str = "read_uncommitted"
) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=10,
        isolation_level=isolation,
    )


def subscribe(consumer: KafkaConsumer, topic: str) -> None:
    consumer.subscribe([topic])
    # One that leads its group before it knows the topic's partitions assigns none, for minutes.
    consumer.partitions_for_topic(topic)


def read(consumer: KafkaConsumer, count: int) -> list[Record]:
    records: list[Record] = []
    deadline = time.monotonic() + TIMEOUT
    while len(records) < count:
        if time.monotonic() > deadline:
            raise AssertionError(f"only {len(records)} of {count} records came")
        for messages in consumer.poll(timeout_ms=100).values():
            records += [
                Record(
                    key=message.key,
                    value=message.value,
                    headers=tuple(message.headers),
                    partition=message.partition,
                    timestamp=message.timestamp,
                    offset=message.offset,
                )
                for message in messages
            ]
    return records
