"""Three brokers of Apache Kafka (KRaft) and three of Penstock on this machine, in turns.

Kafka runs with the options of its start script and a heap of 1 GiB for each broker. Penstock keeps
its metadata in ZooKeeper, so that both detect a killed broker by the same session timeout. The load
comes from one client with little overhead (`broker_client.py`), which shares the cores with the
brokers. Each figure is the median of the rounds; a ratio is Penstock's figure to Kafka's.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.bench_cluster_throughput import (
    BROKERS,
    Load,
    Producers,
    measure_latencies,
)
from bench.cluster_process import process_cpu_seconds, process_memory_mib
from bench.report import Row, at_least, at_most
from penstock.client import Admin, Producer
from penstock.client.admin.model_topics import NewTopic
from penstock.core.errors import KafkaError
from tests.support.cluster.processes import ProcessCluster
from tests.support.cluster.zookeeper_server import ZooKeeperServer
from tests.support.kafka.broker import JVM_OPTIONS, KafkaParts
from tests.support.kafka.cluster import KafkaCluster

ROUNDS: Final = 5
LATENCY_ROUNDS: Final = 3
SESSION_TIMEOUT_S: Final = 6.0
KILLS: Final = 3
PARTITIONS: Final = 1000
MANY_TOPIC: Final = "many"
FAILOVER_TOPIC: Final = "failover"
WAIT_S: Final = 180.0
LOADS: Final = (
    Load("1 KB records, 16 KB batches", 9, 15, 1024, 1, 5, 300),
    Load("100 byte records, one in each request", 9, 1, 100, 1, 50, 1500),
)
WARM_UP_ROUNDS: Final = 4
KAFKA_OPTIONS: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
KAFKA_SETTINGS: Final = {
    "broker.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "broker.heartbeat.interval.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "1000",
    "min.insync.replicas": "2",
    "file.delete.delay.ms": "0",
}
PENSTOCK_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "log.segment.delete.delay.ms": "0",
}


@dataclass(frozen=True)
class ProductionParts(KafkaParts):
    """Kafka with the options of its start script, instead of those for short tests."""

    def command(
        self, program: str | Path, *arguments: str, scratch: str | Path, log_level: str = "warn"
    ) -> list[str]:
        java, *rest = super().command(program, *arguments, scratch=scratch, log_level=log_level)
        return [java, *KAFKA_OPTIONS, *rest[len(JVM_OPTIONS) :]]


class Contender:
    """A cluster of three brokers in processes of their own."""

    def __init__(self, cluster: ProcessCluster | KafkaCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        host, _, port = cluster.bootstrap.partition(",")[0].rpartition(":")
        self.address = host, int(port)

    def cpu_seconds(self) -> float:
        return sum(process_cpu_seconds(node.pid) for node in self.cluster.nodes.values())

    def memory_mib(self) -> float:
        return sum(process_memory_mib(node.pid) for node in self.cluster.nodes.values())


class Comparison:
    """The figures of both, measured in turns."""

    def __init__(self, penstock: Contender, kafka: Contender) -> None:
        self._contenders = penstock, kafka

    def medians(
        self, measure: Callable[[Contender], float], rounds: int
    ) -> tuple[float, float, float]:
        """Returns the medians of Penstock and of Kafka, and the median of their ratios."""
        figures = [[measure(contender) for contender in self._contenders] for _ in range(rounds)]
        ours, theirs = zip(*figures, strict=True)
        ratio = statistics.median(first / second for first, second in figures)
        return statistics.median(ours), statistics.median(theirs), ratio

    def rows(
        self,
        name: str,
        unit: str,
        measure: Callable[[Contender], float],
        target: Callable[[str, float, str, float], Row],
        limit: float,
        rounds: int = ROUNDS,
    ) -> list[Row]:
        ours, theirs, ratio = self.medians(measure, rounds)
        return [
            Row(f"{name}: Penstock", ours, unit),
            Row("  Kafka", theirs, unit),
            target("  Penstock / Kafka", ratio, "", limit),
        ]


# --- what is measured


def throughput(load: Load) -> Callable[[Contender], float]:
    """Returns the measurement of records per second with RF 3 and acks=all."""

    def measure(contender: Contender) -> float:
        producers = Producers(contender, "load", BROKERS, load)
        try:
            return producers.run().per_second
        finally:
            producers.close()

    return measure


def p99_ms(contender: Contender) -> float:
    return measure_latencies(contender, BROKERS).p99_s * 1000


def failover_s(contender: Contender) -> float:
    """Kills the leader of a partition; returns the longest wait of a producer with acks=all."""
    nodes = contender.cluster.nodes
    with Admin(bootstrap_servers=contender.bootstrap) as admin:
        wait_until_in_sync(admin, FAILOVER_TOPIC)
        leader = leader_of(admin, FAILOVER_TOPIC)
        with Producer(bootstrap_servers=contender.bootstrap, linger_ms=0) as producer:
            for _ in range(200):
                producer.send(FAILOVER_TOPIC, b"before").result(WAIT_S)
            start = time.perf_counter()
            nodes[leader].kill()
            producer.send(FAILOVER_TOPIC, b"after").result(WAIT_S)
            seconds = time.perf_counter() - start
        contender.cluster.start()
        wait_until_in_sync(admin, FAILOVER_TOPIC)
    return seconds


def restart_s(contender: Contender) -> float:
    """Stops a broker; returns how long it takes from its start until all replicas are in sync."""
    nodes = contender.cluster.nodes
    with Admin(bootstrap_servers=contender.bootstrap) as admin:
        nodes[max(nodes)].stop()
        start = time.perf_counter()
        contender.cluster.start()
        wait_until_in_sync(admin, MANY_TOPIC)
    return time.perf_counter() - start


# --- topics


def create_topics(contender: Contender) -> None:
    with Admin(bootstrap_servers=contender.bootstrap) as admin:
        for name, partitions in ((FAILOVER_TOPIC, 1), (MANY_TOPIC, PARTITIONS)):
            admin.create_topics([NewTopic(name, partitions, BROKERS)])
            wait_until_in_sync(admin, name)


def leader_of(admin: Admin, topic: str) -> int:
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    assert leader is not None
    return leader


def wait_until_in_sync(admin: Admin, topic: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_in_sync(admin, topic):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic}: not all replicas are in sync after {WAIT_S:.0f} s")
        time.sleep(0.05)


def is_in_sync(admin: Admin, topic: str) -> bool:
    try:
        partitions = admin.describe_topics([topic])[topic].partitions
    except KafkaError:  # it is being created, or its brokers are being elected
        return False
    return all(
        partition.leader is not None and len(partition.isr) == BROKERS for partition in partitions
    )


def run() -> list[Row]:
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name,
        ExitStack() as stack,
    ):
        directory = Path(name)
        zookeeper = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
        penstock = stack.enter_context(
            ProcessCluster(directory / "penstock", PENSTOCK_SETTINGS, zookeeper=zookeeper.address)
        )
        kafka = stack.enter_context(
            KafkaCluster(
                ProductionParts.find(),
                directory / "kafka",
                settings=KAFKA_SETTINGS,
                is_small=False,
            )
        )
        contenders = Contender(penstock), Contender(kafka)
        comparison = Comparison(*contenders)
        rows = []
        # A JVM compiles what runs often: these rounds do not count.
        comparison.medians(throughput(LOADS[0]), WARM_UP_ROUNDS)
        for load in LOADS:
            rows += comparison.rows(
                f"RF 3, acks=all, {load.name}", "records/s", throughput(load), at_least, 1.5
            )
        rows += comparison.rows(
            "1,000 records/s, RF 3, acks=all: p99", "ms", p99_ms, at_most, 0.5, LATENCY_ROUNDS
        )
        rows += comparison.rows(
            "resident memory of the three", "MiB", Contender.memory_mib, at_most, 0.2, 1
        )
        for contender in contenders:
            create_topics(contender)
        rows += comparison.rows(
            f"kill -9 of a leader, session timeout {SESSION_TIMEOUT_S:.0f} s: longest produce",
            "s",
            failover_s,
            at_most,
            1.0,
            KILLS,
        )
        rows += comparison.rows(
            f"restart of a broker with {PARTITIONS:,} partitions",
            "s",
            restart_s,
            at_most,
            0.5,
            KILLS,
        )
        return rows
