"""Consuming over TLS, beside plaintext and beside Apache Kafka's.

One connection reads a partition of 256 MB, which is in the page cache, with Fetch requests of 8 MB
for 1 MB of records each. Without TLS, both brokers send files with sendfile; with TLS, they read
and encrypt. The client decrypts, on the other core, so that the processor time of the broker counts
more than the throughput. Kafka is measured when its code is compiled.
"""

import ssl
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.bench_cluster_kafka import ProductionParts
from bench.bench_logins import write_pem
from bench.broker_client import Client, batch, fetch_frame, produce_frame
from bench.broker_process import start_broker
from bench.cluster_process import process_cpu_seconds
from bench.report import Row, at_most
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.kafka.broker import KafkaBroker

ROUNDS: Final = 5
WARM_UP_ROUNDS: Final = 6
BATCHES: Final = 256
RECORDS: Final = 1000
RECORD_BYTES: Final = 1000
BATCHES_IN_FETCH: Final = 8
IN_FLIGHT: Final = 2
TOPIC: Final = "tls"


class Contender(NamedTuple):
    """A broker in a process of its own, with its ports."""

    pid: int
    plaintext: int
    tls: int


class Figures(NamedTuple):
    megabytes_per_second: float
    cpu_s_per_gigabyte: float


class TlsClient(Client):
    """A connection with TLS, of the newest version that both sides have."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(address)
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost")


def fill(contender: Contender) -> list[bytes]:
    """Writes the partition; returns the Fetch requests that read all of it."""
    records = batch(RECORDS, RECORD_BYTES)
    request = produce_frame(TOPIC, {0: records})
    with Client(("127.0.0.1", contender.plaintext)) as client:
        topic_id = client.create_topic(TOPIC)
        for _ in range(BATCHES):
            client.produced(request)
    size = BATCHES_IN_FETCH * len(records)
    return [
        fetch_frame(topic_id, {0: offset}, max_bytes=size, partition_bytes=size)
        for offset in range(0, BATCHES * RECORDS, BATCHES_IN_FETCH * RECORDS)
    ]


def measure(contender: Contender, requests: list[bytes], context: ssl.SSLContext | None) -> Figures:
    address = "127.0.0.1", contender.plaintext if context is None else contender.tls
    with Client(address) if context is None else TlsClient(address, context) as client:
        client.api_versions()
        begun, begun_cpu = time.perf_counter(), process_cpu_seconds(contender.pid)
        received = client.read_all(requests, IN_FLIGHT)
        taken = time.perf_counter() - begun
        cpu = process_cpu_seconds(contender.pid) - begun_cpu
    if received < BATCHES * RECORDS * RECORD_BYTES:
        raise RuntimeError("records are missing")
    return Figures(received / taken / 1e6, cpu / received * 1e9)


def rows_of(
    name: str,
    ours: tuple[Contender, list[bytes]],
    kafka: tuple[Contender, list[bytes]],
    context: ssl.SSLContext | None,
) -> tuple[list[Row], float]:
    """Returns the rows, and the processor time of Penstock for a gigabyte."""
    for _ in range(WARM_UP_ROUNDS):
        measure(*kafka, context)
    measure(*ours, context)
    pairs = [(measure(*ours, context), measure(*kafka, context)) for _ in range(ROUNDS)]
    first, second = (
        Figures(
            statistics.median(pair[side].megabytes_per_second for pair in pairs),
            statistics.median(pair[side].cpu_s_per_gigabyte for pair in pairs),
        )
        for side in (0, 1)
    )
    ratio = statistics.median(
        one.cpu_s_per_gigabyte / other.cpu_s_per_gigabyte for one, other in pairs
    )
    speed = statistics.median(
        one.megabytes_per_second / other.megabytes_per_second for one, other in pairs
    )
    rows = [
        Row(f"consume, {name}", first.megabytes_per_second, "MB/s"),
        Row("  Kafka", second.megabytes_per_second, "MB/s"),
        Row("  to Kafka's", speed, "times"),
        Row("  processor time of the broker", first.cpu_s_per_gigabyte, "s/GB"),
        Row("  Kafka", second.cpu_s_per_gigabyte, "s/GB"),
        at_most("  of Kafka's", ratio, "times", 1),
    ]
    return rows, first.cpu_s_per_gigabyte


def run() -> list[Row]:
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-"))
        directory = Path(name)
        key_store, trust_store = write_pem(directory, make_identity(simple_name("authority")))
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
        context = ssl.create_default_context(cafile=str(trust_store))
        listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
        server = stack.enter_context(
            start_broker(directory / "penstock", {"listeners": listeners, **settings})
        )
        kafka = stack.enter_context(
            KafkaBroker(ProductionParts.find(), directory / "kafka", settings, listeners=["SSL"])
        )
        ours = Contender(server.pid, *server.ports)
        theirs = Contender(kafka.pid, kafka.port, kafka.ports["SSL"])
        filled = (ours, fill(ours)), (theirs, fill(theirs))
        plain_rows, plain_cpu = rows_of("plaintext", *filled, None)
        tls_rows, tls_cpu = rows_of("TLS", *filled, context)
        return [
            *plain_rows,
            *tls_rows,
            Row("TLS to plaintext, processor time of Penstock", tls_cpu / plain_cpu, "times"),
        ]
