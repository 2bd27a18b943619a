"""The clients compared in one run: Penstock, kafka-python, aiokafka and confluent-kafka.

Each runs in a process of its own against the same broker, in turns, so that a disturbance of the
machine affects all of them. A client's figure is that of its median round; compare the ratios.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.broker_process import start_broker
from bench.client_programs import PARTITIONS, WARM_UP
from bench.report import Row, at_least
from penstock.client import Admin
from penstock.client.admin import NewTopic

ROUNDS = 5
RECORDS = {
    "penstock": 400_000,
    "penstock-aio": 400_000,
    "kafka-python": 100_000,
    "aiokafka": 200_000,
}
"""About as many as a client sends in a second; bulk calls and confluent-kafka send more."""
MANY = 2_000_000
SETTINGS = {"log.segment.bytes": str(1 << 30), "num.partitions": "1"}


def run() -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as directory,
        start_broker(Path(directory), SETTINGS) as broker,
    ):
        address = f"{broker.address[0]}:{broker.address[1]}"
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(WARM_UP, 1)])
            return [*_producing(admin, address), *_consuming(admin, address)]


def _producing(admin: Admin, address: str) -> list[Row]:
    clients = (
        "penstock",
        "penstock-aio",
        "kafka-python",
        "aiokafka",
        "confluent",
        "penstock-bulk",
        "confluent-bulk",
    )
    rates: dict[str, list[float]] = {client: [] for client in clients}
    for number in range(ROUNDS):
        for client in clients:
            topic = f"{client}-{number}"
            admin.create_topics([NewTopic(topic, PARTITIONS)])
            rates[client].append(_rate(client, "produce", address, topic))
            admin.delete_topics([topic])
    return _rows("produce", rates, "send_many against the better of confluent's produce calls")


def _consuming(admin: Admin, address: str) -> list[Row]:
    topic = "to-consume"
    admin.create_topics([NewTopic(topic, PARTITIONS)])
    _rate("penstock-bulk", "produce", address, topic)
    clients = (
        "penstock",
        "penstock-aio",
        "kafka-python",
        "aiokafka",
        "penstock-bulk",
        "confluent-bulk",
    )
    rates: dict[str, list[float]] = {client: [] for client in clients}
    for _ in range(ROUNDS):
        for client in clients:
            rates[client].append(_rate(client, "consume", address, topic))
    return _rows("consume", rates, "poll_arrow against confluent's consume")


def _rate(client: str, role: str, address: str, topic: str) -> float:
    """Records a second."""
    count = RECORDS.get(client, MANY)
    done = subprocess.run(
        [sys.executable, "-m", "bench.client_programs", client, role, address, topic, str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{client} could not {role}:\n{done.stderr}")
    return count / float(done.stdout)


def _rows(role: str, rates: dict[str, list[float]], bulk: str) -> list[Row]:
    median = {client: statistics.median(rounds) for client, rounds in rates.items()}
    rows = [Row(f"{role}: {client}", rate, "records/s") for client, rate in median.items()]
    for name in ("kafka-python", "aiokafka"):
        ratio = median["penstock"] / median[name]
        rows.append(at_least(f"{role}: penstock against {name}", ratio, "times", 2))
    ratio = median["penstock-aio"] / median["aiokafka"]
    rows.append(at_least(f"{role}: penstock.client.aio against aiokafka", ratio, "times", 2))
    best = max(rate for client, rate in median.items() if client.startswith("confluent"))
    rows.append(at_least(f"{role}: {bulk}", median["penstock-bulk"] / best, "times", 1))
    return rows
