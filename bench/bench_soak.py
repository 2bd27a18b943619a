"""Half a minute of mixed load: no errors, and no growth of the broker's memory and open files."""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from bench.broker_client import Client, batch, fetch_frame, produce_frame
from bench.broker_process import Memory, Server, start_broker
from bench.report import Row, at_least, at_most

SECONDS = 30.0
WARM_UP_SECONDS = 10.0
"""Not measured: buffers reach their size, and retention gets its first segments to delete."""
CONNECTIONS = 1000
MEMORY_LIMIT_PERCENT = 5
"""How much the median of the last seconds may exceed that of the first. Segments that are added and
removed change memory by 1 to 2 %; a leak of 100 bytes per request is 60 %."""
FILES_LIMIT_PERCENT = 10
"""Segments are added and removed, so the count varies a little."""
SAMPLES = 5
VISIT_SECONDS = 2.0
LIBRDKAFKA = {"log_level": 4}
"""Without its notes on telemetry."""
SETTINGS = {
    "num.partitions": "4",
    "log.segment.bytes": str(8 * 1024 * 1024),
    "log.retention.bytes": str(16 * 1024 * 1024),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}


class Sample(NamedTuple):
    memory: Memory
    files: int


class Load:
    """Threads that repeat their actions until `stop`, and the errors that occurred."""

    def __init__(self, broker: Server) -> None:
        self.address = broker.address
        self.bootstrap = f"{broker.address[0]}:{broker.address[1]}"
        self.done: dict[str, int] = {}
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def running(self) -> bool:
        return not self._stopping.is_set()

    def running_for(self, seconds: float) -> Callable[[], bool]:
        """Returns a predicate: whether the time has not passed yet."""
        until = time.monotonic() + seconds
        return lambda: self.running and time.monotonic() < until

    def pause(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def count(self, what: str, count: int = 1) -> None:
        self.done[what] = self.done.get(what, 0) + count

    def start(self, work: "Callable[[Load], None]") -> None:
        def run() -> None:
            try:
                work(self)
            except Exception as error:  # noqa: BLE001 - it is counted, and the run fails
                self.errors.append(f"{work.__name__}: {error!r}")

        self._threads.append(threading.Thread(target=run, name=work.__name__))
        self._threads[-1].start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def confluent_producer(load: Load) -> None:
    """librdkafka, idempotent, with a codec, to a topic of four partitions."""
    producer = Producer(
        {
            **LIBRDKAFKA,
            "bootstrap.servers": load.bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
        }
    )

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            load.errors.append(f"delivery: {error}")

    number = 0
    while load.running:
        for _ in range(100):
            producer.produce("shared", b"%d" % number, b"%d" % (number % 50), on_delivery=delivered)
            number += 1
        producer.poll(0)
        load.count("records produced by librdkafka", 100)
        load.pause(0.02)
    if producer.flush(30):
        load.errors.append("records were not delivered")


def group_member(load: Load) -> None:
    """Stays in its group and commits."""
    _consume(load, "group", lambda: load.running)


def group_visitor(load: Load) -> None:
    """Joins the group and leaves it: two rebalances each time."""
    while load.running:
        _consume(load, "group", load.running_for(VISIT_SECONDS))
        load.count("visits to the group")


def _consume(load: Load, group: str, goes_on: Callable[[], bool]) -> None:
    consumer = Consumer(
        {
            **LIBRDKAFKA,
            "bootstrap.servers": load.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(["shared"])
    try:
        while goes_on():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                load.count("records consumed by librdkafka")
    finally:
        consumer.close()


def raw_producer(load: Load) -> None:
    """Requests of one record, 50 in flight."""
    request = produce_frame("raw", {0: batch(1, 100)})
    with Client(load.address) as client:
        response = client.produced(request)
        while load.running:
            client.pipelined([request], [response], 1000, 50)
            load.count("requests of one record", 1000)
            load.pause(0.05)


def large_producer(load: Load) -> None:
    request = produce_frame("large", {0: batch(500, 1000)})
    with Client(load.address) as client:
        while load.running:
            client.produced(request)
            load.count("batches of 500 KB")
            load.pause(0.05)


def long_polls(load: Load) -> None:
    """Fetches that wait for records that never arrive, on twenty connections."""
    clients = [Client(load.address) for _ in range(20)]
    request = fetch_frame(
        clients[0].metadata("silent"), {0: 0}, max_bytes=1000, partition_bytes=1000, max_wait_ms=300
    )
    while load.running:
        for client in clients:
            client.sock.sendall(request)
        for client in clients:
            client.read_response()
        load.count("long polls", len(clients))
    for client in clients:
        client.sock.close()


def metadata(load: Load) -> None:
    """Clients that connect, send a request and disconnect."""
    while load.running:
        with Client(load.address) as client:
            client.api_versions()
            client.metadata("shared")
        load.count("short connections")
        load.pause(0.01)


def topics(load: Load) -> None:
    """Topics that are created, used once, and deleted."""
    with Client(load.address) as client:
        while load.running:
            client.create_topic("passing", 2)
            client.produced(produce_frame("passing", {1: batch(1, 100)}))
            client.delete_topic("passing")
            load.count("topics made and deleted")
            load.pause(0.2)


def crowd(load: Load) -> None:
    """Connections that stay open and send a request occasionally."""
    clients = [Client(load.address) for _ in range(CONNECTIONS)]
    load.count("connections open at the same time", len(clients))
    while load.running:
        for client in clients:
            client.api_versions()
            load.count("requests of the many connections")
            load.pause(0.005)
            if not load.running:
                break
    for client in clients:
        client.sock.close()


LOADS = (
    confluent_producer,
    confluent_producer,
    group_member,
    group_member,
    group_visitor,
    raw_producer,
    large_producer,
    long_polls,
    metadata,
    topics,
    crowd,
)


def soak(directory: Path) -> list[Row]:
    with start_broker(directory / "soak", SETTINGS) as broker:
        with Client(broker.address) as client:
            for topic in ("shared", "raw", "large", "silent"):
                client.create_topic(topic, 4 if topic == "shared" else 1)
        load = Load(broker)
        for work in LOADS:
            load.start(work)
        try:
            load.pause(WARM_UP_SECONDS)
            cpu = broker.cpu_seconds()
            begun = time.monotonic()
            samples = [Sample(broker.memory(), broker.open_files())]
            while time.monotonic() - begun < SECONDS and not load.errors:
                load.pause(1)
                samples.append(Sample(broker.memory(), broker.open_files()))
            cpu = (broker.cpu_seconds() - cpu) / (time.monotonic() - begun)
        finally:
            load.stop()
        complaints = [line for line in broker.log_lines() if " ERROR " in line]
    for problem in [*load.errors, *complaints]:
        print(f"  {problem}")
    return [
        *rows_of(samples),
        at_most("errors", len(load.errors) + len(complaints), "", 0),
        at_least(
            "connections open at the same time",
            load.done.pop("connections open at the same time", 0),
            "",
            CONNECTIONS,
        ),
        Row("broker CPU", cpu * 100, "% of a core"),
        *(Row(what, count, "") for what, count in sorted(load.done.items())),
    ]


def rows_of(samples: list[Sample]) -> list[Row]:
    """Compares memory and open files at the end with those at the start."""
    first, last = samples[:SAMPLES], samples[-SAMPLES:]
    memory = [
        statistics.median(sample.memory.resident for sample in part) for part in (first, last)
    ]
    files = [statistics.median(sample.files for sample in part) for part in (first, last)]
    return [
        Row("resident after the warm-up", memory[0], "MiB"),
        Row("resident at the end", memory[1], "MiB"),
        at_most("  growth", (memory[1] / memory[0] - 1) * 100, "%", MEMORY_LIMIT_PERCENT),
        Row("open files after the warm-up", files[0], ""),
        Row("open files at the end", files[1], ""),
        at_most("  growth", (files[1] / files[0] - 1) * 100, "%", FILES_LIMIT_PERCENT),
    ]


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as directory:
        return soak(Path(directory))
