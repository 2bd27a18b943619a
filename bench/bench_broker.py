"""The broker in its own process, compared with bare loops that do only the I/O.

Bare loop and broker alternate, and the shortest time of each counts: noise affects both alike.
"""

import tempfile
import time
from pathlib import Path

from bench.broker_bare import RANGE
from bench.broker_client import Client, batch, fetch_frame, produce_frame
from bench.broker_measure import Cost, cost, in_turns, throughput
from bench.broker_partitions import partitions
from bench.broker_process import Server, clients_on_a_core, start_bare, start_broker
from bench.report import Row, at_least, at_most

ROUNDS = 12
LARGE_REQUESTS = 128
IN_FLIGHT = 5
"""Large requests in flight: `max.in.flight.requests.per.connection` of a Java producer."""
FETCH_BYTES = 8 * 1024 * 1024
DEFAULT_FETCH_BYTES = 1024 * 1024
"""`max.partition.fetch.bytes`"""
SHORT_ROUNDS = 60
"""Small requests take little time, and a short round is less likely to be disturbed."""
ROUND_TRIPS = 300
PIPELINED = 2_000
DEPTH = 50
DELETE_AT_ONCE = {"log.segment.delete.delay.ms": "0"}


def start(directory: Path) -> list[Row]:
    """Time until a record is acknowledged, with an empty directory, and the idle broker."""
    produce = produce_frame("first", {0: batch(1, 100)}, acks=-1)
    seconds = []
    for attempt in range(5):
        begun = time.perf_counter()
        with start_broker(directory / f"start{attempt}") as broker:
            with Client(broker.address) as client:
                client.api_versions()
                client.metadata("first", create=True)
                client.produced(produce)
                seconds.append(time.perf_counter() - begun)
            time.sleep(1)
            memory = broker.memory()
            cpu = broker.cpu_seconds()
    return [
        at_most("start to first acknowledged record", min(seconds), "s", 0.5),
        Row("  broker CPU until then, and a second idle", cpu, "s"),
        at_most("resident when idle, after the first record", memory.resident, "MiB", 80),
    ]


def large_produce(directory: Path) -> list[Row]:
    """Batches of 1 MB to one partition, compared with a loop that writes its input to a file."""
    records = batch(1000, 1000)
    request = produce_frame("large", {0: records})
    with (
        start_broker(directory / "large", DELETE_AT_ONCE) as broker,
        Client(broker.address) as client,
    ):
        client.create_topic("large")
        response = client.produced(request)
        client.delete_topic("large")
        bare_file = str(directory / "received")
        sizes = str(len(request)), str(response)

        def load(to: Client) -> None:
            to.pipelined([request], [response], LARGE_REQUESTS, IN_FLIGHT)

        def through_broker() -> Cost:
            client.create_topic("large")
            measured = cost(broker, lambda: load(client))
            if client.end_offsets("large") != 1000 * LARGE_REQUESTS:
                raise RuntimeError("records are missing")
            client.delete_topic("large")
            # Its pages go with its files: that must not fall into the next round.
            while any((directory / "large" / "data").glob("large-0*")):
                time.sleep(0.01)
            return measured

        def through_bare() -> Cost:
            with Client(bare.address) as plain:
                measured = cost(bare, lambda: load(plain))
            while Path(bare_file).exists():
                time.sleep(0.01)
            return measured

        with start_bare(directory / "bare-large", "receive", *sizes, bare_file) as bare:
            least, ours = in_turns(ROUNDS, through_bare, through_broker)
    gigabytes = len(request) * LARGE_REQUESTS / 1e9
    return [
        *compared_rows("produce, 1 MB batches", "receive and write", gigabytes, ours, least),
        at_least("  produce / receive and write", least.seconds / ours.seconds * 100, "%", 60),
    ]


def consume(directory: Path) -> list[Row]:
    """Records of 1 KB in batches of 16 KB from the page cache, compared with `os.sendfile`."""
    records = batch(15, 1024)
    batches = 128 * 1024 * 1024 // len(records)
    with start_broker(directory / "consume") as broker, Client(broker.address) as client:
        topic_id = client.create_topic("consume")
        request = produce_frame("consume", {0: records})
        response = client.produced(request)
        client.pipelined([request], [response], batches - 1, DEPTH)
        log = directory / "consume" / "data" / "consume-0" / f"{0:020}.log"
        size = log.stat().st_size

        def offsets(fetch_bytes: int) -> list[int]:
            return [n * 15 for n in range(0, size // len(records), fetch_bytes // len(records))]

        def load(fetch_bytes: int, depth: int) -> Cost:
            requests = [
                fetch_frame(topic_id, {0: at}, max_bytes=fetch_bytes, partition_bytes=fetch_bytes)
                for at in offsets(fetch_bytes)
            ]
            came = 0

            def read() -> None:
                nonlocal came
                came = client.read_all(requests, depth)

            measured = cost(broker, read)
            if not 0 <= came - size < 200 * len(requests):
                raise RuntimeError(f"{came} bytes came instead of {size}")
            return measured

        def bare_load(fetch_bytes: int, depth: int) -> Cost:
            whole = fetch_bytes // len(records) * len(records)
            ranges = [RANGE.pack(at, min(whole, size - at)) for at in range(0, size, whole)]
            with Client(bare.address) as plain:
                return cost(bare, lambda: plain.read_all(ranges, depth))

        with start_bare(directory / "bare-consume", "sendfile", str(log)) as bare:
            least, ours, least_default, ours_default = in_turns(
                ROUNDS,
                lambda: bare_load(FETCH_BYTES, 2),
                lambda: load(FETCH_BYTES, 2),
                lambda: bare_load(DEFAULT_FETCH_BYTES, 1),
                lambda: load(DEFAULT_FETCH_BYTES, 1),
            )
    default_share = least_default.seconds / ours_default.seconds * 100
    return [
        *compared_rows("consume, 1 KB records", "os.sendfile", size / 1e9, ours, least),
        at_least("  consume / os.sendfile", least.seconds / ours.seconds * 100, "%", 60),
        *compared_rows(
            "consume, 1 MB per fetch, one at a time",
            "os.sendfile",
            size / 1e9,
            ours_default,
            least_default,
        ),
        Row("  consume / os.sendfile", default_share, "%"),
    ]


def small_produce(directory: Path) -> list[Row]:
    """Requests of one record: one at a time, compared with an echo, then many in flight."""
    request = produce_frame("small", {0: batch(1, 100)})
    with start_broker(directory / "small") as broker, Client(broker.address) as client:
        client.create_topic("small")
        response = client.produced(request)

        def one_by_one(server: Server, to: Client) -> Cost:
            return cost(server, lambda: to.round_trips(request, response, ROUND_TRIPS))

        def pipelined() -> Cost:
            return cost(broker, lambda: client.pipelined([request], [response], PIPELINED, DEPTH))

        echo = start_bare(directory / "echo", "echo", str(len(request)), str(response))
        with echo, Client(echo.address) as plain:
            least, ours, many = in_turns(
                SHORT_ROUNDS,
                lambda: one_by_one(echo, plain),
                lambda: one_by_one(broker, client),
                pipelined,
            )
        if client.end_offsets("small") != 1 + SHORT_ROUNDS * (ROUND_TRIPS + PIPELINED):
            raise RuntimeError("records are missing")
    return [
        Row("bare echo, one request at a time", ROUND_TRIPS / least.seconds, "per s"),
        Row("produce, one record, one request at a time", ROUND_TRIPS / ours.seconds, "per s"),
        Row("  broker CPU", ours.cpu / (len(request) * ROUND_TRIPS / 1e9), "s/GB"),
        at_least("  produce / bare echo", least.seconds / ours.seconds * 100, "%", 60),
        Row(f"produce, one record, {DEPTH} requests in flight", PIPELINED / many.seconds, "per s"),
        Row("  broker CPU", many.cpu / (len(request) * PIPELINED / 1e9), "s/GB"),
        at_most("  broker CPU for each request", many.cpu / PIPELINED * 1e6, "µs", 40),
    ]


def compared_rows(name: str, bare_name: str, gigabytes: float, ours: Cost, bare: Cost) -> list[Row]:
    return [
        *throughput(f"bare {bare_name}", bare, gigabytes, ""),
        *throughput(name, ours, gigabytes),
    ]


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name, clients_on_a_core():
        directory = Path(name)
        rows: list[Row] = []
        for scenario in (start, large_produce, consume, small_produce, partitions):
            rows += scenario(directory)
        return rows
