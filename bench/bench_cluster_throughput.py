"""Three brokers with replication factor 3 and acks=all, compared with one broker and factor 1.

Both get the same requests over the same number of connections: in the cluster each producer has one
to each leader. They alternate within one run. Figures are records for each CPU second of all broker
processes, from `/proc`, so that they hardly depend on how many cores there are; the clients do not
count. The more requests are in flight, the more batches a follower gets with one fetch, and the
less replication costs: therefore the numbers of producers differ.
"""

import selectors
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bench.broker_client import Client, batch, produce_frame
from bench.cluster_process import ClusterProcess
from bench.report import Row, at_least
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

BROKERS: Final = 3
PARTITIONS: Final = 6
"""Two for each leader."""
ROUNDS: Final = 5
IDLE_PARTITIONS: Final = 1000
IDLE_SECONDS: Final = 20
PACED_RECORDS: Final = 5000
PACE_S: Final = 0.001
READY_SECONDS: Final = 60.0
SETTINGS: Final = {
    "log.segment.delete.delay.ms": "0",
}


class Load(NamedTuple):
    """Requests of one kind, and how many of them each connection sends in a round."""

    name: str
    producers: int
    """Each of them has three connections."""
    records: int
    value_bytes: int
    partitions: int
    """How many partitions get a batch with each request."""
    depth: int
    """Requests in flight on each connection."""
    requests: int

    @property
    def total_records(self) -> int:
        return self.records * self.partitions * self.requests * BROKERS * self.producers


LOADS: Final = (
    Load("1 KB records, 16 KB batches, one in each request", 9, 15, 1024, 1, 5, 500),
    Load("1 KB records, 16 KB batches, two in each request", 9, 15, 1024, 2, 5, 300),
    Load("100 byte records, one in each request", 9, 1, 100, 1, 50, 4000),
)
"""Those with a target: nine producers, so that the brokers always have something to do."""
OTHER_LOADS: Final = (
    Load("three producers: 1 KB records, 16 KB batches", 3, 15, 1024, 1, 5, 1500),
    Load("three producers: 100 byte records", 3, 1, 100, 1, 50, 10_000),
    Load("one producer: 1 KB records, 16 KB batches", 1, 15, 1024, 1, 5, 3000),
    Load("one producer: 100 byte records", 1, 1, 100, 1, 50, 20_000),
    Load("one producer: 1 KB records, 1 MB batches", 1, 1000, 1000, 1, 5, 100),
)


class MeasuredCluster(Protocol):
    """The brokers under load."""

    @property
    def address(self) -> tuple[str, int]:
        """The address of any of the brokers."""

    def cpu_seconds(self) -> float:
        """Returns the processor time of the brokers so far."""


class Throughput(NamedTuple):
    """Records in one round."""

    per_cpu_second: float
    per_second: float


class Producers:
    """Connections to the leaders of a topic of six partitions, two each.

    With one broker all of them go there, and send the same requests.
    """

    def __init__(self, cluster: MeasuredCluster, name: str, brokers: int, load: Load) -> None:
        self._cluster = cluster
        self._name = name
        self._load = load
        with Client(cluster.address) as client:
            addresses = wait_for_brokers(client, brokers)
        self._admin = Client(addresses[min(addresses)])
        leaders = sorted(addresses)
        self._clients = [
            Client(addresses[leaders[n % brokers]])
            for _ in range(load.producers)
            for n in range(BROKERS)
        ]
        self._replicas = [
            [leaders[(n + k) % brokers] for k in range(min(brokers, BROKERS))]
            for n in range(PARTITIONS)
        ]
        records = batch(load.records, load.value_bytes)
        self._frames = [
            [
                produce_frame(name, dict.fromkeys(indexes[n : n + load.partitions], records), -1)
                for n in range(0, len(indexes), load.partitions)
            ]
            for indexes in (list(range(n, PARTITIONS, BROKERS)) for n in range(BROKERS))
        ] * load.producers

    def run(self) -> Throughput:
        """Creates the topic, runs the load, and deletes the topic."""
        create_topic(self._admin, self._name, self._replicas)
        wait_for_leaders(self._clients, self._name, PARTITIONS)
        lanes = []
        for client, frames in zip(self._clients, self._frames, strict=True):
            response = {produce_first(client, frame) for frame in frames}
            assert len(response) == 1
            lanes.append(Lane(client, frames, response.pop()))
        cpu, start = self._cluster.cpu_seconds(), time.perf_counter()
        pipeline(lanes, self._load.requests, self._load.depth)
        seconds = time.perf_counter() - start
        cpu_seconds = self._cluster.cpu_seconds() - cpu
        delete_topic(self._admin, self._name)
        time.sleep(0.5)
        records = self._load.total_records
        return Throughput(records / cpu_seconds, records / seconds)

    def close(self) -> None:
        for client in (self._admin, *self._clients):
            client.__exit__()


class Lane:
    """The requests of one connection, which repeat, and the size of each response."""

    def __init__(self, client: Client, frames: Sequence[bytes], response: int) -> None:
        self.client = client
        self.frames = frames
        self.response = response
        self.sent = self.completed = self.partial = 0

    def send(self, count: int) -> None:
        frames, sent = self.frames, self.sent
        data = b"".join(frames[n % len(frames)] for n in range(sent, sent + count))
        self.client.sock.sendall(data)
        self.sent += count

    def receive(self) -> int:
        """Returns how many responses are complete now."""
        received = len(self.client.sock.recv(1024 * 1024))
        if not received:
            raise ConnectionResetError("the broker closed the connection")
        count, self.partial = divmod(self.partial + received, self.response)
        self.completed += count
        return count


def pipeline(lanes: Sequence[Lane], requests: int, depth: int) -> None:
    """Sends so many requests on each connection, with up to `depth` in flight on each."""
    with selectors.DefaultSelector() as selector:
        for lane in lanes:
            selector.register(lane.client.sock, selectors.EVENT_READ, lane)
            lane.send(min(depth, requests))
        waiting = len(lanes)
        while waiting:
            for key, _ in selector.select():
                lane = key.data
                count = min(lane.receive(), requests - lane.sent)
                if count:
                    lane.send(count)
                elif lane.completed == requests:
                    selector.unregister(lane.client.sock)
                    waiting -= 1


# --- topics


def wait_for_brokers(client: Client, count: int) -> dict[int, tuple[str, int]]:
    """Returns the addresses of the brokers once all of them are known."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        response = client.send_request(MetadataRequest([]), 12, MetadataResponse)
        if len(response.brokers) == count:
            return {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(response.brokers)} of {count} brokers are known")
        time.sleep(0.1)


def create_topic(client: Client, name: str, replicas: Sequence[Sequence[int]]) -> None:
    assignments = [
        CreatableReplicaAssignment(number, list(brokers)) for number, brokers in enumerate(replicas)
    ]
    configs = [CreatableTopicConfig("min.insync.replicas", str(min(2, len(replicas[0]))))]
    topic = CreatableTopic(name, -1, -1, assignments, configs)
    deadline = time.monotonic() + READY_SECONDS
    while True:
        request = CreateTopicsRequest([topic], 30_000)
        (result,) = client.send_request(request, 7, CreateTopicsResponse).topics
        if not result.error_code:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name}: error {result.error_code}: {result.error_message}")
        time.sleep(0.1)  # the one of the last round is still being deleted


def delete_topic(client: Client, name: str) -> None:
    request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=30_000)
    (result,) = client.send_request(request, 6, DeleteTopicsResponse).responses
    if result.error_code:
        raise RuntimeError(f"{name}: error {result.error_code}: {result.error_message}")


def wait_for_leaders(clients: Sequence[Client], name: str, partitions: int) -> None:
    """Waits until every broker knows the leaders of a topic, and all replicas are in sync."""
    deadline = time.monotonic() + READY_SECONDS
    for client in clients:
        while True:
            request = MetadataRequest([MetadataRequestTopic(name=name)], False)
            (topic,) = client.send_request(request, 12, MetadataResponse).topics
            if len(topic.partitions) == partitions and all(
                partition.leader_id >= 0
                and len(partition.isr_nodes) == len(partition.replica_nodes)
                for partition in topic.partitions
            ):
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name}: not all partitions have a leader")
            time.sleep(0.05)


def produce_first(client: Client, frame: bytes) -> int:
    """Sends the first request to a leader; returns the size of its response.

    Kafka publishes the leaders of a new topic before they accept records.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            return client.produced(frame)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def wait_for_logs(directory: Path, count: int) -> None:
    """Waits until the brokers have created the logs of so many replicas."""
    deadline = time.monotonic() + 4 * READY_SECONDS
    while (logs := sum(1 for _ in directory.rglob("idle-*"))) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{logs} of {count} logs exist")
        time.sleep(1)


# --- measurements


def compare(one: ClusterProcess, three: ClusterProcess, load: Load) -> tuple[float, float, float]:
    """Returns records per CPU second of both, and the median ratio over the rounds."""
    producers = Producers(one, "one", 1, load), Producers(three, "three", BROKERS, load)
    rounds = [[producer.run().per_cpu_second for producer in producers] for _ in range(ROUNDS)]
    for producer in producers:
        producer.close()
    alone, replicated = zip(*rounds, strict=True)
    ratio = statistics.median(second / first for first, second in rounds)
    return statistics.median(alone), statistics.median(replicated), ratio


def throughput(directory: Path) -> list[Row]:
    rows = []
    with (
        ClusterProcess(directory / "one", 1, SETTINGS) as one,
        ClusterProcess(directory / "three", BROKERS, SETTINGS) as three,
    ):
        for load in (*LOADS, *OTHER_LOADS):
            alone, replicated, ratio = compare(one, three, load)
            rows.append(Row(f"{load.name}: RF 1", alone, "/CPU s"))
            rows.append(Row("  RF 3, three brokers, acks=all", replicated, "/CPU s"))
            if load in LOADS:
                rows.append(at_least("  RF 3 / RF 1", ratio * 100, "%", 50))
            else:
                rows.append(Row("  RF 3 / RF 1", ratio * 100, "%"))
        rows += latency("RF 1", one, 1)
        rows += latency("RF 3", three, BROKERS)
    return rows


class Latencies(NamedTuple):
    """Of one record each millisecond, with acks=all."""

    p50_s: float
    p99_s: float
    cpu_fraction: float
    """The processor time of the brokers, of one core."""


def latency(what: str, cluster: MeasuredCluster, brokers: int) -> list[Row]:
    latencies = measure_latencies(cluster, brokers)
    name = f"1,000 records/s, {what}, acks=all"
    return [
        Row(f"{name}: p50", latencies.p50_s * 1000, "ms"),
        Row(f"{name}: p99", latencies.p99_s * 1000, "ms"),
        Row(f"{name}: CPU", latencies.cpu_fraction * 100, "%"),
    ]


def measure_latencies(cluster: MeasuredCluster, brokers: int) -> Latencies:
    """One record each millisecond, to the partitions in turn, whether or not others wait."""
    load = Load("paced", 1, 1, 100, 1, 1, 1)
    producers = Producers(cluster, "paced", brokers, load)
    create_topic(producers._admin, "paced", producers._replicas)
    wait_for_leaders(producers._clients, "paced", PARTITIONS)
    lanes = []
    for client, frames in zip(producers._clients, producers._frames, strict=True):
        lanes.append(Lane(client, frames, produce_first(client, frames[0])))
    cpu = cluster.cpu_seconds()
    latencies = sorted(paced(lanes, PACED_RECORDS))
    cpu = cluster.cpu_seconds() - cpu
    delete_topic(producers._admin, "paced")
    producers.close()
    return Latencies(
        latencies[len(latencies) // 2],
        latencies[len(latencies) * 99 // 100],
        cpu / (PACED_RECORDS * PACE_S),
    )


def paced(lanes: Sequence[Lane], count: int) -> list[float]:
    """Sends a record each millisecond; returns the time from when it was due to its response."""
    latencies: list[float] = []
    due: dict[Lane, list[float]] = {lane: [] for lane in lanes}
    with selectors.DefaultSelector() as selector:
        for lane in lanes:
            selector.register(lane.client.sock, selectors.EVENT_READ, lane)
        start = time.perf_counter()
        sent = 0
        while len(latencies) < count:
            now = time.perf_counter()
            while sent < count and (at := start + sent * PACE_S) <= now:
                lane = lanes[sent % len(lanes)]
                due[lane].append(at)
                lane.send(1)
                sent += 1
            timeout = max(0.0, start + sent * PACE_S - time.perf_counter()) if sent < count else 1
            for key, _ in selector.select(timeout):
                lane = key.data
                completed = lane.receive()
                now = time.perf_counter()
                latencies += [now - at for at in due[lane][:completed]]
                del due[lane][:completed]
    return latencies


def idle(directory: Path) -> list[Row]:
    """Three brokers with 1,000 partitions of factor 3 that nobody uses."""
    with ClusterProcess(directory / "idle", BROKERS, SETTINGS) as cluster:
        with Client(cluster.address) as client:
            brokers = sorted(wait_for_brokers(client, BROKERS))
            replicas = [[brokers[(n + k) % 3] for k in range(3)] for n in range(IDLE_PARTITIONS)]
            create_topic(client, "idle", replicas)
            wait_for_leaders([client], "idle", IDLE_PARTITIONS)
        wait_for_logs(directory / "idle", BROKERS * IDLE_PARTITIONS)
        time.sleep(10)
        cpu = cluster.broker_cpu_seconds()
        time.sleep(IDLE_SECONDS)
        percentages = [
            (after - before) / IDLE_SECONDS * 100
            for before, after in zip(cpu, cluster.broker_cpu_seconds(), strict=True)
        ]
        memory = cluster.broker_memory()
    return [
        Row("idle, 1,000 partitions with RF 3: CPU of a broker, most", max(percentages), "%"),
        Row("  mean of the three", statistics.mean(percentages), "%"),
        Row("  resident memory of a broker, most", max(memory), "MiB"),
    ]


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        directory = Path(name)
        return [*throughput(directory), *idle(directory)]
