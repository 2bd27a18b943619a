"""The broker that clients are tried on: ours, or Apache Kafka's, to prove the tests themselves.

COMPAT_BROKER=kafka pytest tests/compat/clients/test_transactions.py
"""

import os
from pathlib import Path

from tests.support.kafka import KafkaBroker, KafkaParts
from tests.support.penstock_broker import PenstockBroker

VARIABLE = "COMPAT_BROKER"

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",  # by default a group waits 3 s
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.min.session.timeout.ms": "1000",
}
"""With these nobody waits for long."""

KAFKA_ONLY = {
    # It batches the coordinator's records, and assigns partitions, after some time.
    "group.coordinator.append.linger.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


def chosen_broker(folder: Path) -> PenstockBroker | KafkaBroker:
    """The broker that the environment asks for: penstock, which is ours, or kafka."""
    match os.environ.get(VARIABLE, "penstock"):
        case "penstock":
            return PenstockBroker(folder, SETTINGS)
        case "kafka":
            return KafkaBroker(KafkaParts.find(), folder, {**SETTINGS, **KAFKA_ONLY})
        case other:
            raise ValueError(f"{VARIABLE} is {other!r}: it must be penstock or kafka")
