"""The broker that clients are tried on: ours, or Apache Kafka's, to prove the tests themselves.

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
"""With these nobody waits for long, and nothing is deleted meanwhile."""


def chosen_broker(
    directory: Path, entrance: Listener, inside: Listener
) -> PenstockBroker | KafkaBroker:
    """The broker that the environment asks for: penstock, which is ours, or kafka.

    Clients are told to come to `entrance`. Ours listens at `inside`, Kafka at its `bootstrap`.
    """
    settings = {**SETTINGS, "advertised.listeners": str(entrance)}
    match os.environ.get(VARIABLE, "penstock"):
        case "penstock":
            return PenstockBroker(directory, {**settings, "listeners": str(inside)})
        case "kafka":
            return KafkaBroker(KafkaParts.find(), directory, settings)
        case other:
            raise ValueError(f"{VARIABLE} is {other!r}: it must be penstock or kafka")
