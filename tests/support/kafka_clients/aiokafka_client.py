"""aiokafka: each operation runs in an event loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, KafkaTimeoutError, ProducerFenced, for_code

from tests.support.kafka_clients.model import (
    NO_CODE,
    NO_OFFSET,
    Acks,
    AdminClient,
    ClientError,
    GroupRead,
    Record,
)

TIMEOUT = 20.0
PRODUCER_FENCED = 90


class AiokafkaClient(AdminClient):
    name = "aiokafka"

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
        async def run() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                request_timeout_ms=int(timeout * 1000),
                max_request_size=4 << 20,
                linger_ms=5,
            )
            async with client_errors(), producer:
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
                results = await asyncio.gather(*sent)
            return [NO_OFFSET if acks == "0" else result.offset for result in results]

        return asyncio.run(run())

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int], count: int
    ) -> list[Record]:
        async def run() -> list[Record]:
            async with client_errors(), make_consumer(bootstrap, None) as consumer:
                consumer.assign([TopicPartition(topic, partition) for partition in partitions])
                await consumer.seek_to_beginning()
                return await read(consumer, count)

        return asyncio.run(run())

    def consume_group(self, bootstrap: str, topic: str, group: str, count: int) -> GroupRead:
        async def run() -> GroupRead:
            async with client_errors(), make_consumer(bootstrap, group) as consumer:
                consumer.subscribe([topic])
                records = await read(consumer, count)
                await consumer.commit()
                committed = {
                    topic_partition.partition: await consumer.committed(topic_partition)
                    for topic_partition in consumer.assignment()
                }
                return GroupRead(records, committed)

        return asyncio.run(run())

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        async def run() -> int:
            topic_partition = TopicPartition(topic, partition)
            async with client_errors(), make_consumer(bootstrap, None) as consumer:
                result = (await consumer.offsets_for_times({topic_partition: timestamp}))[
                    topic_partition
                ]
            return NO_OFFSET if result is None else int(result.offset)

        return asyncio.run(run())

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        async def run() -> None:
            new = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
            async with client_errors(), _admin(bootstrap) as admin:
                response = await admin.create_topics([new])
            for _, code, *message in response.topic_errors:
                _check(code, str(message))

        asyncio.run(run())

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        async def run() -> None:
            async with client_errors(), _admin(bootstrap) as admin:
                response = await admin.delete_topics([topic])
            for name, code in response.topic_error_codes:
                _check(code, name)

        asyncio.run(run())

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        async def run() -> dict[str, str | None]:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            async with client_errors(), _admin(bootstrap) as admin:
                [response] = await admin.describe_configs([resource])
            [(code, message, _, _, configs)] = response.resources
            _check(code, message)
            return {name: value for name, value, *_ in configs}

        return asyncio.run(run())


@asynccontextmanager
async def client_errors() -> AsyncIterator[None]:
    """Turns the client's own exceptions into ours."""
    try:
        yield
    except KafkaError as error:
        # Waiting for a topic's metadata ends in a timeout that has no other cause.
        timed_out = isinstance(error, KafkaTimeoutError)
        code = NO_CODE if timed_out else int(getattr(error, "errno", NO_CODE))
        if isinstance(error, ProducerFenced):  # it has no code of its own
            code = PRODUCER_FENCED
        raise ClientError(code, repr(error)) from error


def _check(code: int, message: str) -> None:
    if code:
        raise ClientError(code, f"{for_code(code).__name__}: {message}")


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def make_consumer(
    bootstrap: str, group: str | None, isolation: str = "read_uncommitted"
) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=10,
        isolation_level=isolation,
    )


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(TIMEOUT):
        while len(records) < count:
            message = await consumer.getone()
            records.append(
                Record(
                    key=message.key,
                    value=message.value,
                    headers=tuple(message.headers),
                    partition=message.partition,
                    timestamp=message.timestamp,
                    offset=message.offset,
                )
            )
    return records
