"""One client producing or consuming in a process of its own: prints how many seconds it took.

    python -m bench.client_programs CLIENT produce|consume ADDRESS TOPIC COUNT

Every producer sends the same 100-byte values without keys and finishes when all in-sync replicas
have acknowledged them; every consumer is assigned all partitions and finishes when it has received
all records. Connecting and metadata are not measured. Clients have their own default settings,
except `acks=all` and, if the default is less, batches of at least 16 KiB that linger up to 5 ms.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from itertools import repeat

VALUE = b"v" * 100
WARM_UP = "warm-up"
PARTITIONS = 4
LIST = 10_000
"""The number of records in a bulk call."""
_START = b"before the clock starts"


def penstock_produce(address: str, topic: str, count: int) -> float:
    from penstock.client import Producer

    with Producer(bootstrap_servers=address) as producer:
        producer.send(WARM_UP, _START).result()
        producer.partitions_for(topic)
        start = time.perf_counter()
        send = producer.send
        for _ in repeat(None, count):
            send(topic, VALUE)
        producer.flush()
        return time.perf_counter() - start


def penstock_bulk_produce(address: str, topic: str, count: int) -> float:
    from penstock.client import Producer

    with Producer(bootstrap_servers=address) as producer:
        producer.send(WARM_UP, _START).result()
        producer.partitions_for(topic)
        start = time.perf_counter()
        for size in _portions(count):
            producer.send_many(topic, [VALUE] * size)
        producer.flush()
        return time.perf_counter() - start


def penstock_aio_produce(address: str, topic: str, count: int) -> float:
    from penstock.client.aio import Producer

    async def work() -> float:
        async with Producer(bootstrap_servers=address) as producer:
            await (await producer.send(WARM_UP, _START))
            await producer.partitions_for(topic)
            start = time.perf_counter()
            for _ in repeat(None, count):
                await producer.send(topic, VALUE)
            await producer.flush()
            return time.perf_counter() - start

    return asyncio.run(work())


def kafka_python_produce(address: str, topic: str, count: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5)
    producer.send(WARM_UP, _START).get()
    producer.partitions_for(topic)
    start = time.perf_counter()
    for _ in repeat(None, count):
        producer.send(topic, VALUE)
    producer.flush()
    elapsed = time.perf_counter() - start
    producer.close()
    return elapsed


def aiokafka_produce(address: str, topic: str, count: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def work() -> float:
        producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5)
        await producer.start()
        await producer.send_and_wait(WARM_UP, _START)
        await producer.partitions_for(topic)
        start = time.perf_counter()
        for _ in repeat(None, count):
            await producer.send(topic, VALUE)
        await producer.flush()
        elapsed = time.perf_counter() - start
        await producer.stop()
        return elapsed

    return asyncio.run(work())


def confluent_produce(address: str, topic: str, count: int) -> float:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    producer.produce(WARM_UP, _START)
    producer.flush()
    producer.list_topics(topic)
    start = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % LIST:
            producer.poll(0)
    producer.flush()
    return time.perf_counter() - start


def confluent_bulk_produce(address: str, topic: str, count: int) -> float:
    from confluent_kafka import Producer

    # Its queue of 100,000 messages would refuse a part of a batch.
    settings = {"bootstrap.servers": address, "acks": "all", "queue.buffering.max.messages": count}
    producer = Producer(settings)
    producer.produce(WARM_UP, _START)
    producer.flush()
    producer.list_topics(topic)
    start = time.perf_counter()
    for size in _portions(count):
        producer.produce_batch(topic, [{"value": VALUE}] * size)
        producer.poll(0)
    producer.flush()
    return time.perf_counter() - start


def penstock_consume(address: str, topic: str, count: int) -> float:
    from penstock.client import Consumer
    from penstock.core.ids import TopicPartition

    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.partitions_for(topic)
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        start = time.perf_counter()
        received = 0
        while received < count:
            received += len(consumer.poll(1.0))
        return time.perf_counter() - start


def penstock_bulk_consume(address: str, topic: str, count: int) -> float:
    from penstock.client import Consumer
    from penstock.core.ids import TopicPartition

    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.partitions_for(topic)
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        start = time.perf_counter()
        received = 0
        while received < count:
            received += consumer.poll_arrow(1.0).num_rows
        return time.perf_counter() - start


def penstock_aio_consume(address: str, topic: str, count: int) -> float:
    from penstock.client.aio import Consumer
    from penstock.core.ids import TopicPartition

    async def work() -> float:
        async with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            await consumer.partitions_for(topic)
            consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
            start = time.perf_counter()
            received = 0
            while received < count:
                received += len(await consumer.poll(1.0))
            return time.perf_counter() - start

    return asyncio.run(work())


def kafka_python_consume(address: str, topic: str, count: int) -> float:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.partitions_for_topic(topic)
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    start = time.perf_counter()
    received = 0
    while received < count:
        for records in consumer.poll(1000).values():
            received += len(records)
    elapsed = time.perf_counter() - start
    consumer.close()
    return elapsed


def aiokafka_consume(address: str, topic: str, count: int) -> float:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def work() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        start = time.perf_counter()
        received = 0
        while received < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                received += len(records)
        elapsed = time.perf_counter() - start
        await consumer.stop()
        return elapsed

    return asyncio.run(work())


def confluent_bulk_consume(address: str, topic: str, count: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    # With its own settings librdkafka waits a second whenever it has 100,000 records in stock, and
    # is four times slower; these are what its users set against that.
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.list_topics(topic)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    start = time.perf_counter()
    received = 0
    while received < count:
        received += len(consumer.consume(LIST, 1.0))
    elapsed = time.perf_counter() - start
    consumer.close()
    return elapsed


PROGRAMS: dict[tuple[str, str], Callable[[str, str, int], float]] = {
    ("penstock", "produce"): penstock_produce,
    ("penstock-aio", "produce"): penstock_aio_produce,
    ("penstock-bulk", "produce"): penstock_bulk_produce,
    ("kafka-python", "produce"): kafka_python_produce,
    ("aiokafka", "produce"): aiokafka_produce,
    ("confluent", "produce"): confluent_produce,
    ("confluent-bulk", "produce"): confluent_bulk_produce,
    ("penstock", "consume"): penstock_consume,
    ("penstock-aio", "consume"): penstock_aio_consume,
    ("penstock-bulk", "consume"): penstock_bulk_consume,
    ("kafka-python", "consume"): kafka_python_consume,
    ("aiokafka", "consume"): aiokafka_consume,
    ("confluent-bulk", "consume"): confluent_bulk_consume,
}


def _portions(count: int) -> Iterator[int]:
    for done in range(0, count, LIST):
        yield min(LIST, count - done)


if __name__ == "__main__":
    client, role, address, topic, count = sys.argv[1:]
    print(PROGRAMS[client, role](address, topic, int(count)))
