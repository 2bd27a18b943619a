"""Several whole brokers in the test's process, each on its thread, with one metadata store.

with running_cluster(tmp_path, brokers=3) as cluster, cluster.connect(0) as client:
    response = client.request(MetadataRequest(), 9)
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from penstock.broker.broker import Broker
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.supervised.server import StoreServer
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker

T = TypeVar("T")
TIMEOUT_S = 120.0

CLUSTER_SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}

ALONE_SETTINGS = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Of a cluster with one broker."""


class RunningCluster:
    """Brokers by id. One that has been stopped can be started again."""

    def __init__(
        self, directory: Path, socket: Path, settings: Mapping[str, str], log_dirs: int
    ) -> None:
        self._directory = directory
        self._log_dirs = log_dirs
        self._settings = {**CLUSTER_SETTINGS, "metadata.store.socket": str(socket), **settings}
        self.brokers: dict[int, RunningBroker] = {}
        self._stacks: dict[int, ExitStack] = {}

    def start(self, broker_id: int) -> RunningBroker:
        stack = ExitStack()
        settings = {
            "node.id": str(broker_id),
            "log.dirs": ",".join(map(str, self.log_dirs(broker_id))),
            **self._settings,
        }
        broker = stack.enter_context(
            running_broker(self._directory / f"broker-{broker_id}", settings)
        )
        self._stacks[broker_id] = stack
        self.brokers[broker_id] = broker
        return broker

    def log_dirs(self, broker_id: int) -> list[Path]:
        """The log directories of a broker."""
        names = ["data", *(f"data-{number}" for number in range(1, self._log_dirs))]
        return [self._directory / f"broker-{broker_id}" / name for name in names]

    def stop(self, broker_id: int) -> None:
        del self.brokers[broker_id]
        self._stacks.pop(broker_id).close()

    def close(self) -> None:
        for broker_id in list(self.brokers):
            self.stop(broker_id)

    def connect(self, broker_id: int, listener: str | None = None) -> WireClient:
        return self.brokers[broker_id].connect(listener)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def controller_id(self) -> int:
        return next(iter(self.brokers.values())).call(lambda broker: broker.image.controller_id)

    def wait_until(self, condition: Callable[[], T], what: str) -> T:
        """Returns the first true value of the condition."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := condition()):
            assert time.monotonic() < deadline, f"timed out: {what}"
            time.sleep(0.02)
        return value

    def wait_on_all(self, condition: Callable[[Broker], Any], what: str) -> None:
        """Waits until the condition holds on every broker."""
        self.wait_until(
            lambda: all(broker.call(condition) for broker in self.brokers.values()), what
        )

    def create_topic(self, name: str, *replicas: tuple[int, ...]) -> None:
        """Creates a topic with these replicas of its partitions; every broker knows it then."""
        assignments = [
            CreatableReplicaAssignment(number, list(brokers))
            for number, brokers in enumerate(replicas)
        ]
        request = CreateTopicsRequest([CreatableTopic(name, -1, -1, assignments)])
        with self.connect(self.controller_id) as client:
            (result,) = client.request(request, 7).topics
        assert result.error_code == 0, result.error_message
        self.wait_on_all(
            lambda broker: all(
                TopicPartition(name, number) in broker.image.partitions
                for number in range(len(replicas))
            ),
            f"every broker knows topic {name}",
        )


@contextmanager
def running_cluster(
    directory: Path,
    *,
    brokers: int,
    settings: Mapping[str, str] | None = None,
    log_dirs: int = 1,
) -> Iterator[RunningCluster]:
    """Starts brokers 0, 1, … that share a store; stops those that still run at the end.

    Each has so many `log_dirs`.
    """
    socket = directory / "store.sock"
    server = StoreServer(EmbeddedStore(directory / "metadata.db"), socket)
    cluster = RunningCluster(directory, socket, settings or {}, log_dirs)
    try:
        for broker_id in range(brokers):
            cluster.start(broker_id)
        cluster.wait_on_all(
            lambda broker: len(broker.image.brokers) == brokers, "every broker knows the others"
        )
        yield cluster
    finally:
        cluster.close()
        server.close()


@contextmanager
def running_member(
    directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[RunningBroker]:
    """Starts one broker of a cluster: unlike a single node, it serves requests of other brokers."""
    settings = {**ALONE_SETTINGS, **(settings or {})}
    with running_cluster(directory, brokers=1, settings=settings) as cluster:
        yield cluster.brokers[0]
