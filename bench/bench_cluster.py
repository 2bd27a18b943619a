"""10,000 partitions on three brokers: creation, failover of a third of them, start of the cluster.

`PARTITIONS=1000 python -m bench cluster` measures with as many; `STORE=zookeeper` with ZooKeeper
instead of a supervisor. The brokers are processes, with their files on a tmpfs if there is one.

A failover ends when a surviving broker has other leaders for all partitions of the broker that was
killed in its metadata, and a record is accepted with `acks=all` by a sample of them. With ZooKeeper
it includes the time until the session ends, which is subtracted.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker_client import PRODUCE_VERSION, Client, batch, produce_frame
from bench.report import Row, at_most
from penstock.protocol.frames import decode_response
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.produce import ProduceResponse
from tests.support.cluster.zookeeper_server import ZooKeeperServer

COUNT: Final = int(os.environ.get("PARTITIONS", "10000"))
STORE: Final = os.environ.get("STORE", "supervisor")
BROKERS: Final = 3
TOPICS: Final = 10
SESSION_MS: Final = 6000
SAMPLE: Final = 30
_DEADLINE_S: Final = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")
_BATCH = batch(1, 100)


class PartitionLeader(NamedTuple):
    topic: str
    partition: int
    leader: int
    isr: int
    """How many replicas are in sync."""


class Cluster:
    """Three broker processes under a supervisor, or with ZooKeeper."""

    def __init__(self, directory: Path, zookeeper: str | None) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        self._process: subprocess.Popen[str] | None = None
        self.addresses: dict[int, tuple[str, int]] = {}

    @property
    def log(self) -> Path:
        return self._directory / "cluster.log"

    def start(self) -> None:
        """Returns when all brokers accept connections."""
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self._directory / "data"),
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "auto.leader.rebalance.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
        }
        if self._zookeeper is not None:
            settings["zookeeper.connect"] = self._zookeeper
        command = [sys.executable, "-m", "penstock", "serve", "--brokers", str(BROKERS)]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        with self.log.open("a") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        ports = [int(port) for port in re.findall(r":(\d+)", line)]
        if len(ports) != BROKERS:
            self.stop()
            raise RuntimeError(f"the cluster did not start:\n{self.log.read_text()[-3000:]}")
        self.addresses = {number: ("127.0.0.1", port) for number, port in enumerate(ports)}

    def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=_DEADLINE_S)

    def pids(self) -> dict[int, int]:
        """The process of each broker, as the supervisor has logged it."""
        lines = re.findall(r"broker (\d+) \(pid (\d+)\) is ready", self.log.read_text())
        return {int(broker_id): int(pid) for broker_id, pid in lines}

    def cpu_seconds(self) -> float:
        """Returns the processor time of the brokers that run."""
        total = 0.0
        for pid in self.pids().values():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / _TICKS
        return total


def leaders(client: Client, topic_names: Sequence[str]) -> list[PartitionLeader]:
    """Returns the leaders of all partitions of these topics in the metadata of a broker."""
    topics = [MetadataRequestTopic(name=name) for name in topic_names]
    response = client.send_request(MetadataRequest(topics), 12, MetadataResponse)
    return [
        PartitionLeader(
            topic.name or "",
            partition.partition_index,
            partition.leader_id,
            len(partition.isr_nodes),
        )
        for topic in response.topics
        for partition in topic.partitions
    ]


def names() -> list[str]:
    return [f"topic-{number}" for number in range(TOPICS)]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"timed out: {what}")
        time.sleep(0.05)


def create(cluster: Cluster) -> None:
    """Creates the topics through the controller."""
    with Client(cluster.addresses[0]) as client:
        response = client.send_request(MetadataRequest([]), 12, MetadataResponse)
        controller = response.controller_id
    with Client(cluster.addresses[controller]) as client:
        client.sock.settimeout(_DEADLINE_S)
        for name in names():
            topic = CreatableTopic(name, COUNT // TOPICS, BROKERS)
            request = CreateTopicsRequest([topic], int(_DEADLINE_S * 1000))
            result = client.send_request(request, 7, CreateTopicsResponse).topics[0]
            if result.error_code:
                raise RuntimeError(f"{name}: {result.error_message}")


def wait_for_leaders(cluster: Cluster, observers: Sequence[int], led_by: set[int]) -> None:
    """Waits until these brokers know leaders of all partitions, which are among `led_by`."""
    for observer in observers:
        with Client(cluster.addresses[observer]) as client:
            client.sock.settimeout(_DEADLINE_S)

            def is_led(name: str, client: Client = client) -> bool:
                current = leaders(client, [name])
                leader_ids = {partition.leader for partition in current}
                return len(current) == COUNT // TOPICS and leader_ids <= led_by

            # One topic at a time: the metadata of all of them would be most of the work.
            for name in names():
                wait_until(partial(is_led, name), f"broker {observer} knows the leaders")


def wait_for_isrs(cluster: Cluster, observer: int) -> None:
    """Waits until all replicas are in sync."""
    with Client(cluster.addresses[observer]) as client:
        client.sock.settimeout(_DEADLINE_S)

        def are_in_sync(name: str) -> bool:
            return all(leader.isr == BROKERS for leader in leaders(client, [name]))

        for name in names():
            wait_until(partial(are_in_sync, name), "all replicas are in sync")


def produce_to(cluster: Cluster, sample: Sequence[PartitionLeader]) -> None:
    """Produces to each partition of a sample until its leader accepts it."""
    with ExitStack() as closing:
        clients: dict[int, Client] = {}
        for led in sample:
            if led.leader not in clients:
                client = closing.enter_context(Client(cluster.addresses[led.leader]))
                client.sock.settimeout(_DEADLINE_S)
                clients[led.leader] = client
            request = produce_frame(led.topic, {led.partition: _BATCH}, acks=-1)
            accepts = partial(is_accepted, clients[led.leader], request)
            wait_until(accepts, f"{led.topic}-{led.partition} accepts records")


def is_accepted(client: Client, request: bytes) -> bool:
    client.sock.sendall(request)
    response = decode_response(ProduceResponse, PRODUCE_VERSION, client.read_response())[1]
    return response.responses[0].partition_responses[0].error_code == 0


def fail_over(cluster: Cluster) -> tuple[float, int]:
    """Kills a broker that is not the controller; returns the seconds until others lead all."""
    with Client(cluster.addresses[0]) as client:
        client.sock.settimeout(_DEADLINE_S)
        current = leaders(client, names())
        response = client.send_request(MetadataRequest([]), 12, MetadataResponse)
    counts = Counter(partition.leader for partition in current)
    killed = next(number for number in (2, 1, 0) if number != response.controller_id)
    others = [number for number in range(BROKERS) if number != killed]
    moved = [partition for partition in current if partition.leader == killed]
    sample = {
        (partition.topic, partition.partition)
        for partition in moved[:: max(1, len(moved) // SAMPLE)]
    }
    started = time.monotonic()
    os.kill(cluster.pids()[killed], signal.SIGKILL)
    wait_for_leaders(cluster, others, set(others))
    with Client(cluster.addresses[others[0]]) as client:
        client.sock.settimeout(_DEADLINE_S)
        now_led = leaders(client, sorted({topic for topic, _ in sample}))
    produce_to(cluster, [item for item in now_led if (item.topic, item.partition) in sample])
    return time.monotonic() - started, counts[killed]


@contextmanager
def running_zookeeper(directory: Path) -> Iterator[str | None]:
    if STORE != "zookeeper":
        yield None
        return
    with ZooKeeperServer(directory) as server:
        yield f"{server.address}/bench"


def run() -> list[Row]:
    memory = Path("/dev/shm")
    parent = str(memory) if memory.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=parent))
    try:
        with running_zookeeper(directory / "zookeeper") as zookeeper:
            cluster = Cluster(directory, zookeeper)
            try:
                return measure(cluster)
            finally:
                cluster.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measure(cluster: Cluster) -> list[Row]:
    everyone = list(range(BROKERS))
    title = f"{COUNT:,} partitions on {BROKERS} brokers"
    cluster.start()
    wait_for_brokers(cluster)
    cpu = cluster.cpu_seconds()
    started = time.monotonic()
    create(cluster)
    wait_for_leaders(cluster, everyone, set(everyone))
    creation = time.monotonic() - started
    creation_cpu = cluster.cpu_seconds() - cpu
    wait_for_isrs(cluster, 0)
    seconds, count = fail_over(cluster)
    session_s = SESSION_MS / 1000 if STORE == "zookeeper" else 0.0
    cluster.stop()
    started = time.monotonic()
    cluster.start()
    wait_for_leaders(cluster, everyone, set(everyone))
    start = time.monotonic() - started
    start_cpu = cluster.cpu_seconds()
    return [
        Row(f"{title}, create", creation, "s"),
        Row("  processor time of all brokers", creation_cpu, "s"),
        at_most(f"{title}, failover of {count:,}", seconds - session_s, "s", 5),
        at_most(f"{title}, start", start, "s", 30),
        Row("  processor time of all brokers", start_cpu, "s"),
    ]


def wait_for_brokers(cluster: Cluster) -> None:
    with Client(cluster.addresses[0]) as client:

        def are_up() -> bool:
            response = client.send_request(MetadataRequest([]), 12, MetadataResponse)
            return len(response.brokers) == BROKERS

        wait_until(are_up, "all brokers are up")
