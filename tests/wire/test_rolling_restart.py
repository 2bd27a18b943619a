"""A controlled restart of each broker in turn, as clients see it (R8): no errors, no long waits."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from penstock.client import Consumer, Producer
from tests.support.cluster.brokers import RunningCluster, running_cluster

logger = logging.getLogger(__name__)

T = TypeVar("T")
TIMEOUT_S = 120.0
SPREAD = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
"""Each broker leads one of three partitions."""
LONGEST_S = 30.0
"""Far more than a request should take, because the machine may be busy with other tests."""
SETTINGS = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}


class Clients:
    """Clients that run until they are stopped. An error ends one of them."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._servers = cluster.bootstrap_servers
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
                future = producer.send("plain", b"p%d" % number, partition=number % 3)
                self._measure("produce", partial(future.result, TIMEOUT_S))
                self.sent.add(b"p%d" % number)

    def _transact(self) -> None:
        with Producer(bootstrap_servers=self._servers, transactional_id="rolling") as producer:
            producer.init_transactions()
            while not self._is_stopping.wait(0.005):
                producer.begin_transaction()
                values = [b"t%d-%d" % (len(self.committed), number) for number in range(3)]
                for partition, value in enumerate(values):
                    producer.send("transactional", value, partition=partition)
                self._measure("commit of a transaction", producer.commit_transaction)
                self.committed.update(values)

    def _consume(self) -> None:
        with Consumer(
            bootstrap_servers=self._servers,
            group_id="rolling",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe(["plain", "transactional"])
            end_s = math.inf
            while time.monotonic() < end_s:
                if end_s == math.inf and self._are_all_sent.is_set():
                    end_s = time.monotonic() + TIMEOUT_S
                records = self._measure("poll of 50 ms", partial(consumer.poll, 0.05))
                self.consumed.update(bytes(record.value or b"") for record in records)
                self._measure("commit of offsets", consumer.commit)
                if end_s < math.inf and self.consumed >= self.sent | self.committed:
                    return


def test_a_restart_of_each_broker_costs_no_client_an_error(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        for topic in ("plain", "transactional"):
            cluster.create_topic(topic, *SPREAD)
        clients = Clients(cluster)
        with clients.running():
            cluster.wait_until(lambda: clients.consumed & clients.committed, "all clients run")
            for broker_id in range(3):
                cluster.stop(broker_id)
                cluster.start(broker_id)
                cluster.wait_on_all(
                    lambda broker: all(
                        len(record.isr) == 3 for record in broker.image.partitions.values()
                    ),
                    "all replicas are in sync",
                )
        assert clients.consumed == clients.sent | clients.committed
        logger.info("%d records; longest calls: %s", len(clients.consumed), clients.longest_s)
        assert max(clients.longest_s.values()) < LONGEST_S, clients.longest_s
