"""Penstock's consumer with a broker in the test's process."""

import time
from collections.abc import Callable
from typing import Unpack

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.record import ConsumerRecord
from penstock.client.settings import ConsumerOptions
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import TIMEOUT_S, RunningBroker


def consumer_of(broker: RunningBroker | str, **options: Unpack[ConsumerOptions]) -> Consumer:
    """Returns a consumer that starts at the first record by default; the caller closes it."""
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    all_options: ConsumerOptions = {
        "bootstrap_servers": servers,
        "auto_offset_reset": "earliest",
        "retry_backoff_ms": 20,
        "fetch_max_wait_ms": 100,
        "default_api_timeout_ms": 20_000,
        **options,
    }
    return Consumer(**all_options)


def polled(consumer: Consumer, count: int, *, at_once: int | None = None) -> list[ConsumerRecord]:
    """Polls until there are `count` records."""
    records: list[ConsumerRecord] = []
    until(lambda: len(records) >= count, lambda: records.extend(consumer.poll(1.0, at_once)))
    assert len(records) == count, records
    return records


def until(done: Callable[[], bool], step: Callable[[], object]) -> None:
    """Repeats a step until `done()`."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, "not done in time"
        step()


def values(records: list[ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)
