"""A broker and a cluster for a test: the time from their start to the first acknowledged record."""

import statistics
import subprocess
import sys
import time

from confluent_kafka import Producer

from bench.report import Row, at_most
from penstock.testing import Broker, Cluster

STARTS = 15
LIMIT_S = 0.5
CLUSTER_LIMIT_S = 1.5


def run() -> list[Row]:
    with Broker() as warm_up:
        _first_record(warm_up)
    times = []
    commands = []
    for _ in range(STARTS):
        start = time.perf_counter()
        with Broker() as broker:
            _first_record(broker)
            times.append(time.perf_counter() - start)
            commands.append(_command(broker))
    cluster_starts = []
    cluster_times = []
    for _ in range(STARTS):
        start = time.perf_counter()
        with Cluster() as cluster:
            cluster_starts.append(time.perf_counter() - start)
            _first_record(cluster)
            cluster_times.append(time.perf_counter() - start)
    return [
        at_most(
            "fixture to first acknowledged record, median", statistics.median(times), "s", LIMIT_S
        ),
        at_most("fixture to first acknowledged record, worst", max(times), "s", LIMIT_S),
        at_most(
            "cluster of three brokers, ready, median",
            statistics.median(cluster_starts),
            "s",
            CLUSTER_LIMIT_S,
        ),
        at_most(
            "cluster of three brokers, ready, worst", max(cluster_starts), "s", CLUSTER_LIMIT_S
        ),
        Row(
            "cluster to first record on three replicas, median",
            statistics.median(cluster_times),
            "s",
        ),
        Row("penstock topic list, start to end, median", statistics.median(commands), "s"),
    ]


def _first_record(broker: Broker | Cluster) -> None:
    broker.create_topic("first")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    failures: list[object] = []
    producer.produce("first", b"value", on_delivery=lambda error, _: failures.append(error))
    producer.flush()
    if failures != [None]:
        raise RuntimeError(f"the record was not acknowledged: {failures}")


def _command(broker: Broker) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "penstock", "topic", "list", "-b", broker.bootstrap_servers]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start
