"""A broker for a test: the time from its start to the first acknowledged record."""

import statistics
import subprocess
import sys
import time

from confluent_kafka import Producer

from bench.report import Row, at_most
from penstock.testing import Broker

STARTS = 15
LIMIT_S = 0.5


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
    return [
        at_most(
            "fixture to first acknowledged record, median", statistics.median(times), "s", LIMIT_S
        ),
        at_most("fixture to first acknowledged record, worst", max(times), "s", LIMIT_S),
        Row("penstock topic list, start to end, median", statistics.median(commands), "s"),
    ]


def _first_record(broker: Broker) -> None:
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
