"""What metrics cost: small requests with `metrics.port` and a scrape per second, and without.

Both brokers run the same requests in turns. What counts is the processor time of the event loop's
thread, which the kernel measures in nanoseconds, so that other programs hardly matter: the median
over the rounds of the ratio within a round. Two processes of the same program differ by a percent
or two, by the luck of their memory, so the mean over several pairs of processes counts.
"""

import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker_client import Client, batch, fetch_frame, produce_frame
from bench.broker_process import Server, clients_on_a_core, start_broker
from bench.report import Row, at_most

PAIRS: Final = 6
ROUNDS: Final = 16
REQUESTS: Final = 1500
DEPTH: Final = 20
MANY_PARTITIONS: Final = 10_000
_SCRAPE_S: Final = 1.0
_ADDRESS: Final = re.compile(r"metrics are served on http://([\d.]+):(\d+)/")


def loop_seconds(server: Server) -> float:
    """Returns the processor time of the main thread so far."""
    return int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[0]) / 1e9


def metrics_address(server: Server) -> tuple[str, int]:
    match = _ADDRESS.search("\n".join(server.log_lines()))
    if match is None:
        raise RuntimeError(f"the broker serves no metrics:\n{server.output}")
    return match[1], int(match[2])


def scrape(connection: HTTPConnection) -> int:
    """Returns the size of the metrics."""
    connection.request("GET", "/metrics")
    with connection.getresponse() as response:
        return len(response.read())


@contextmanager
def scraped(server: Server) -> Iterator[None]:
    """Scrapes a broker every second, like a Prometheus in a hurry."""
    stopping = threading.Event()

    def run() -> None:
        connection = HTTPConnection(*metrics_address(server))
        while not stopping.wait(_SCRAPE_S):
            scrape(connection)
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


class _Load:
    """One broker with a topic, and requests for it."""

    def __init__(self, server: Server, client: Client) -> None:
        self._server = server
        self._client = client
        topic_id = client.create_topic("small")
        self._produce = produce_frame("small", {0: batch(1, 100)})
        self._produce_response = client.produced(self._produce)
        self._fetch = fetch_frame(topic_id, {0: 0}, max_bytes=1, partition_bytes=1)

    def _measured(self, action: Callable[[], object]) -> float:
        begun = loop_seconds(self._server)
        action()
        return loop_seconds(self._server) - begun

    def produce(self) -> float:
        return self._measured(
            lambda: self._client.pipelined(
                [self._produce], [self._produce_response], REQUESTS, DEPTH
            )
        )

    def fetch(self) -> float:
        return self._measured(lambda: self._client.read_all([self._fetch] * REQUESTS, DEPTH))


class Comparison(NamedTuple):
    """The medians of one pair of processes."""

    microseconds: float
    """Of the event loop for each request, without metrics."""
    ratio: float
    """With metrics, compared with that."""


def compare(plain: Callable[[], float], metered: Callable[[], float]) -> Comparison:
    pairs = [
        (plain(), metered()) if turn % 2 else (metered(), plain())[::-1] for turn in range(ROUNDS)
    ]
    return Comparison(
        statistics.median(without for without, _ in pairs) / REQUESTS * 1e6,
        statistics.median(with_metrics / without for without, with_metrics in pairs),
    )


def small_requests(directory: Path) -> list[Row]:
    produces: list[Comparison] = []
    fetches: list[Comparison] = []
    for number in range(PAIRS):
        with (
            start_broker(directory / f"plain{number}") as plain,
            start_broker(directory / f"metered{number}", {"metrics.port": "0"}) as metered,
            Client(plain.address) as plain_client,
            Client(metered.address) as metered_client,
            scraped(metered),
        ):
            loads = _Load(plain, plain_client), _Load(metered, metered_client)
            produces.append(compare(*(load.produce for load in loads)))
            fetches.append(compare(*(load.fetch for load in loads)))
    return [*_rows("small produce", produces), *_rows("small fetch", fetches)]


def _rows(name: str, comparisons: Sequence[Comparison]) -> list[Row]:
    microseconds = statistics.median(pair.microseconds for pair in comparisons)
    added = statistics.mean(pair.ratio for pair in comparisons) - 1
    return [
        Row(f"{name}, without metrics", microseconds, "µs of the loop"),
        at_most(f"  {name} with metrics, scraped every second", added * 100, "% more", 1),
    ]


def many_partitions(directory: Path) -> list[Row]:
    """A scrape of a broker with many partitions, and the longest wait of other requests."""
    with (
        start_broker(directory / "many", {"metrics.port": "0"}) as broker,
        Client(broker.address) as client,
    ):
        for number in range(MANY_PARTITIONS // 1000):
            client.create_topic(f"many-{number}", 1000)
        connection = HTTPConnection(*metrics_address(broker))
        scrape(connection)
        time.sleep(1.5)  # the next one is not a copy of it
        seconds: list[float] = []
        sizes: list[int] = []

        def run() -> None:
            begun = time.perf_counter()
            sizes.append(scrape(connection))
            seconds.append(time.perf_counter() - begun)

        begun_cpu = loop_seconds(broker)
        thread = threading.Thread(target=run)
        thread.start()
        waits = _round_trips_while(thread, client)
        cpu = loop_seconds(broker) - begun_cpu
        connection.close()
    return [
        Row(f"scrape of {MANY_PARTITIONS} partitions", seconds[0] * 1000, "ms"),
        Row("  size", sizes[0] / 1024, "KiB"),
        Row("  time of the loop, with the requests below", cpu * 1000, "ms"),
        at_most("  longest request meanwhile", max(waits) * 1000, "ms", 25),
    ]


def _round_trips_while(thread: threading.Thread, client: Client) -> Sequence[float]:
    waits = []
    while thread.is_alive():
        begun = time.perf_counter()
        client.api_versions()
        waits.append(time.perf_counter() - begun)
    return waits


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name, clients_on_a_core():
        directory = Path(name)
        return [*small_requests(directory), *many_partitions(directory)]
