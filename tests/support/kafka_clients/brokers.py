"""The broker under test: Penstock, or Apache Kafka to verify the tests themselves.

COMPAT_BROKER=kafka pytest tests/compat/clients/test_transactions.py
"""

import os
from pathlib import Path

from penstock.testing.addresses import Listener
from tests.support.broker.process import PenstockBroker
from tests.support.kafka.broker import KafkaBroker, KafkaParts

VARIABLE = "COMPAT_BROKER"

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",  # by default a group waits 3 s
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",  # by default 1 s from one to the next
    "group.min.session.timeout.ms": "1000",
    "log.retention.ms": "-1",  # the times of records in tests are of years ago
}
"""Short waits, and no retention, for tests that are not about them."""


def chosen_broker(
    directory: Path, entrance: Listener, inside: Listener
) -> PenstockBroker | KafkaBroker:
    """Returns the broker that the environment variable names: penstock (the default) or kafka.

    It advertises `entrance`. Penstock listens at `inside`, Kafka at its `bootstrap`.
    """
    settings = {**SETTINGS, "advertised.listeners": str(entrance)}
    match os.environ.get(VARIABLE, "penstock"):
        case "penstock":
            return PenstockBroker(directory, {**settings, "listeners": str(inside)})
        case "kafka":
            return KafkaBroker(KafkaParts.find(), directory, settings)
        case name:
            raise ValueError(f"{VARIABLE} is {name!r}: it must be penstock or kafka")
