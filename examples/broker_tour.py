"""A tour of the broker: start it, create a topic, produce and consume with a Kafka client, show.

    make demo

The client is confluent-kafka, which does not know Penstock: any Kafka client works.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it names no exports
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 30_000
READY = "ready on "


@contextmanager
def broker(directory: Path) -> Iterator[str]:
    """Runs `penstock serve` on a free port, and yields the address for clients."""
    command = [sys.executable, "-m", "penstock", "serve", "--log-level", "warning"]
    command += ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", f"log.dirs={directory}"]
    # A group with one member does not need to wait for more.
    command += ["--set", "group.initial.rebalance.delay.ms=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if READY not in line:
            raise SystemExit("the broker did not start; its own message is above")
        yield line.split(READY)[1].strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    print(f"broker stopped with exit code {process.returncode}")


def create(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "3600000"})
    admin.create_topics([topic])[TOPIC].result()
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    settings = admin.describe_configs([resource])[resource].result()
    retention = settings["retention.ms"].value
    print(f"created topic {TOPIC} with {PARTITIONS} partitions, retention.ms={retention}")


def produce(address: str) -> None:
    """Produces with idempotence and compression, acknowledged by all replicas."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    began = time.perf_counter()
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            key=f"customer-{number % 100}",
            value=f'{{"order": {number}, "amount": {number % 97}}}',
            headers={"source": b"demo"},
            on_delivery=delivered,
        )
        producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - began
    if failed:
        raise SystemExit(f"{len(failed)} records were refused, the first with {failed[0]}")
    print(f"produced {RECORDS:,} records in {seconds:.2f} s ({RECORDS / seconds:,.0f} records/s)")


def consume(address: str) -> None:
    """Consumes as a member of a consumer group, from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    per_partition = dict.fromkeys(range(PARTITIONS), 0)
    last: Message | None = None
    began = time.perf_counter()
    while sum(per_partition.values()) < RECORDS:
        for message in consumer.consume(10_000, timeout=10):
            if message.error() is not None:
                raise SystemExit(f"consuming failed: {message.error()}")
            per_partition[message.partition() or 0] += 1
            last = message
    seconds = time.perf_counter() - began
    consumer.commit(asynchronous=False)
    committed = consumer.committed(consumer.assignment())
    consumer.close()
    print(f"consumed {RECORDS:,} records in {seconds:.2f} s ({RECORDS / seconds:,.0f} records/s)")
    for position in sorted(committed, key=lambda position: position.partition):
        number, offset = position.partition, position.offset
        count = per_partition[number]
        print(f"  partition {number}: {count:,} records, committed offset {offset}")
    if last is not None:
        print(f"  the last one: key={last.key()!r} value={last.value()!r} headers={last.headers()}")


def show_files(directory: Path) -> None:
    """Shows the files, which Kafka's own tools can read, too."""
    log = directory / f"{TOPIC}-0" / f"{0:020d}.log"
    command = [sys.executable, "-m", "penstock", "dump-log", str(log)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    print(f"{log.parent.name}/{log.name}, {log.stat().st_size:,} bytes, begins with:")
    for line in lines[:3]:
        print(f"  {line[:110]}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name, "data")
        began = time.perf_counter()
        with broker(directory) as address:
            print(f"broker ready on {address} after {time.perf_counter() - began:.2f} s")
            create(address)
            produce(address)
            consume(address)
        show_files(directory)


if __name__ == "__main__":
    main()
