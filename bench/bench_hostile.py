"""Giant requests to every API, beside a client that produces and consumes (X5).

The broker runs in a process of its own and measures the stalls of its event loop; the other client,
the canary, runs in another one and measures its latency.
"""

import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from bench.broker_client import Client, batch, fetch_frame, frame, produce_frame
from bench.broker_process import Server
from bench.hostile_cluster import cluster_requests
from bench.report import Row, at_most
from penstock.broker.handlers.table import CLUSTER_APIS
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.protocol.giant_requests import GROUP, TOPIC, GiantRequest, array_paths
from tests.support.protocol.giant_requests import giant_request as build_request

CANARY_MS = 100.0
STALL_MS = 50.0
POSSIBLE = 99_000
"""Just below the default of socket.request.max.elements."""
PLAUSIBLE = 20_000
PLAUSIBLE_OF = {
    ApiKey.METADATA: 10_000,
    ApiKey.CREATE_TOPICS: 1000,
    ApiKey.DELETE_TOPICS: 1000,
    ApiKey.CREATE_PARTITIONS: 1000,
    ApiKey.CREATE_ACLS: 1000,
    ApiKey.DELETE_ACLS: 1000,
    ApiKey.ALTER_CLIENT_QUOTAS: 1000,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 1000,
}
"""What a client of a cluster with 100,000 partitions may send in one request."""

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "5",
}
RESPONSE_SECONDS = 120.0


class Measure(NamedTuple):
    """What the giant requests of one kind did to others."""

    title: str
    stall_ms: float
    latencies_ms: list[float]


class Canary:
    """A process that produces and consumes one record after the other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._pipe, child = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_canary, args=(address, child), daemon=True)
        self._process.start()
        self._pipe.recv()

    def latencies(self) -> list[float]:
        """Returns the milliseconds of all round trips since the last call."""
        self._pipe.send(None)
        result: list[float] = self._pipe.recv()
        return result

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()


def _canary(address: tuple[str, int], pipe: Connection) -> None:
    with Client(address) as client:
        topic_id = client.create_topic("canary")
        request = produce_frame("canary", {0: batch(1, 100)})
        offset = client.produced(request)
        latencies: list[float] = []
        pipe.send(None)
        while True:
            start = time.perf_counter()
            client.sock.sendall(request)
            client.drop_response()
            offset += 1
            client.sock.sendall(
                fetch_frame(topic_id, {0: offset}, max_bytes=1000, partition_bytes=1000)
            )
            client.drop_response()
            latencies.append(1000 * (time.perf_counter() - start))
            if pipe.poll():
                pipe.recv()
                pipe.send(latencies)
                latencies = []
            time.sleep(0.002)


class Target:
    """The broker under attack and its canary."""

    def __init__(self, directory: Path) -> None:
        arguments = ["bench.hostile_broker", f"log.dirs={directory / 'data'}"]
        arguments += [f"{name}={value}" for name, value in SETTINGS.items()]
        self.server = Server(arguments, directory / "broker.log")
        # Threads of the broker need a core of their own beside the loop, as anywhere else.
        os.sched_setaffinity(self.server.pid, os.sched_getaffinity(0))
        with Client(self.server.address) as client:
            client.create_topic(TOPIC, 10)
            for key_type in (0, 1):
                client.sock.sendall(frame(FindCoordinatorRequest(GROUP, key_type), 2))
                client.drop_response()
        time.sleep(1)
        self.canary = Canary(self.server.address)

    def close(self) -> None:
        self.canary.stop()
        self.server.__exit__()

    def attack(self, title: str, data: bytes) -> Measure:
        """Sends a request, waits for its response, and returns what others saw."""
        self.canary.latencies()
        self.server.longest_stall()
        with Client(self.server.address) as client:
            client.sock.settimeout(RESPONSE_SECONDS)
            with suppress(ConnectionError):
                client.sock.sendall(data)
                client.drop_response()
        time.sleep(0.05)
        return Measure(title, 1000 * self.server.longest_stall(), self.canary.latencies())


def giant_requests(sizes: dict[ApiKey, int], default: int) -> Iterator[GiantRequest]:
    for key, version, path in array_paths():
        if key not in CLUSTER_APIS:  # those of brokers to each other, which a single node refuses
            yield build_request(key, version, path, sizes.get(key, default))


def measure(target: Target, kind: str, measures: list[Measure]) -> list[Row]:
    latencies = sorted(latency for measure in measures for latency in measure.latencies_ms)
    worst = sorted(measures, key=lambda item: -item.stall_ms)
    for measure in worst[:8]:
        p99 = _p99(measure.latencies_ms)
        print(f"    {measure.stall_ms:8.1f} ms stall, canary p99 {p99:8.1f} ms  {measure.title}")
    return [
        at_most(f"canary p99, {kind}", _p99(latencies), "ms", CANARY_MS),
        Row(f"canary max, {kind}", max(latencies), "ms"),
        at_most(f"longest stall of the loop, {kind}", worst[0].stall_ms, "ms", STALL_MS),
        Row(f"median of the longest stalls, {kind}", _median(measures), "ms"),
        Row(f"requests, {kind}", len(measures), ""),
        Row(f"memory of the broker after {kind}", target.server.memory().own, "MB"),
    ]


def _median(measures: list[Measure]) -> float:
    return statistics.median(measure.stall_ms for measure in measures)


def _p99(latencies: list[float]) -> float:
    ordered = sorted(latencies)
    return ordered[int(len(ordered) * 0.99)] if ordered else 0.0


def run() -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        target = Target(Path(directory))
        try:
            time.sleep(2)
            rows.append(Row("canary p99, alone", _p99(target.canary.latencies()), "ms"))
            for kind, sizes, default in (
                ("plausible", PLAUSIBLE_OF, PLAUSIBLE),
                ("possible", {}, POSSIBLE),
            ):
                measures = []
                for giant in giant_requests(sizes, default):
                    data = frame(giant.message, giant.version)
                    measures.append(target.attack(giant.title, data))
                rows += measure(target, kind, measures)
            measures = [
                target.attack(title, data)
                for title, data in cluster_requests(target.server.address)
            ]
            rows += measure(target, "whole cluster", measures)
        finally:
            target.close()
    return rows


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for row in run():
        print(row)
