"""Clients of a cluster that run while brokers are stopped, and measure how long their calls take.

    clients = MeasuredClients(bootstrap_servers)
    with clients.running():
        ...  # restart brokers
    assert clients.consumed == clients.sent | clients.committed
    print(clients.longest_s)

The topics `plain` and `transactional` need three partitions each.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import TypeVar

from penstock.client import Consumer, Producer

T = TypeVar("T")
TIMEOUT_S = 120.0
PLAIN = "plain"
TRANSACTIONAL = "transactional"
GROUP = "measured"
TRANSACTIONAL_ID = "measured"
PRODUCE = "produce"
COMMIT_TRANSACTION = "commit of a transaction"
COMMIT_OFFSETS = "commit of offsets"
POLL = "poll of 50 ms"


class MeasuredClients:
    """A producer, a transactional one and a consumer in a group. An error ends one of them."""

    def __init__(self, bootstrap_servers: str | Sequence[str]) -> None:
        self._servers = bootstrap_servers
        self._is_stopping = Event()
        self._are_all_sent = Event()
        self.longest_s: dict[str, float] = {}
        """The longest call of each kind."""
        self.sent: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.consumed: set[bytes] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs the clients; at the end, raises the errors of those that had any."""
        with ThreadPoolExecutor(3) as pool:
            producers = [pool.submit(self._produce), pool.submit(self._transact)]
            consumer = pool.submit(self._consume)
            try:
                yield
                self._is_stopping.set()
                for producer in producers:
                    producer.result(TIMEOUT_S)
            finally:
                self._is_stopping.set()
                self._are_all_sent.set()
            consumer.result(TIMEOUT_S)

    def _measure(self, kind: str, call: Callable[[], T]) -> T:
        start = time.monotonic()
        result = call()
        duration_s = time.monotonic() - start
        self.longest_s[kind] = max(self.longest_s.get(kind, 0.0), duration_s)
        return result

    def _produce(self) -> None:
        """Waits for each record, idempotent and with acks=all."""
        with Producer(bootstrap_servers=self._servers) as producer:
            while not self._is_stopping.wait(0.005):
                number = len(self.sent)
                future = producer.send(PLAIN, b"p%d" % number, partition=number % 3)
                self._measure(PRODUCE, partial(future.result, TIMEOUT_S))
                self.sent.add(b"p%d" % number)

    def _transact(self) -> None:
        with Producer(
            bootstrap_servers=self._servers, transactional_id=TRANSACTIONAL_ID
        ) as producer:
            producer.init_transactions()
            while not self._is_stopping.wait(0.005):
                producer.begin_transaction()
                values = [b"t%d-%d" % (len(self.committed), number) for number in range(3)]
                for partition, value in enumerate(values):
                    producer.send(TRANSACTIONAL, value, partition=partition)
                self._measure(COMMIT_TRANSACTION, producer.commit_transaction)
                self.committed.update(values)

    def _consume(self) -> None:
        with Consumer(
            bootstrap_servers=self._servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([PLAIN, TRANSACTIONAL])
            end_s = math.inf
            while time.monotonic() < end_s:
                if end_s == math.inf and self._are_all_sent.is_set():
                    end_s = time.monotonic() + TIMEOUT_S
                records = self._measure(POLL, partial(consumer.poll, 0.05))
                self.consumed.update(bytes(record.value or b"") for record in records)
                self._measure(COMMIT_OFFSETS, consumer.commit)
                if end_s < math.inf and self.consumed >= self.sent | self.committed:
                    return
