"""Broker processes of one cluster on this machine, which are killed and started one at a time.

with ProcessCluster(tmp_path) as cluster:
    cluster.nodes[1].kill()
    cluster.start()

`penstock serve --brokers` would start a killed broker again at once; here it stays down until the
test starts it. The metadata store is the one of such a supervisor, in the test's process, or in
ZooKeeper.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from penstock.client.admin.admin import Admin
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_topics import ElectionType, NewTopic, PartitionDescription
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.supervised.server import StoreServer
from penstock.coordinator.partitioning import partition_for
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.testing.addresses import Listener, Ports
from tests.support.broker.in_process import WireClient
from tests.support.broker.process import PenstockBroker

HOST = "127.0.0.1"
START_SECONDS = 60.0
WAIT_S = 120.0
GROUPS_LOG = "__consumer_offsets"

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",  # by default a group waits 3 s
    "replica.lag.time.max.ms": "5000",
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": "-1",
}


class ProcessCluster:
    """Brokers 1, 2, … with two log directories each. Their ports do not change with a restart."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        size: int = 3,
        *,
        zookeeper: str | None = None,
    ) -> None:
        """`zookeeper` is the address of a server that keeps the metadata."""
        self._directory = directory
        self._uses_zookeeper = zookeeper is not None
        self._ports = Ports()
        self._store: StoreServer | None = None
        self._listeners = {
            broker_id: self._ports.reserve(Listener("PLAINTEXT", HOST, 0))
            for broker_id in range(1, size + 1)
        }
        self.log_dirs: dict[int, tuple[Path, Path]] = {}
        self.nodes: dict[int, PenstockBroker] = {}
        socket = str(directory / "store.sock")
        store = (
            {"metadata.store.socket": socket}
            if zookeeper is None
            else {"zookeeper.connect": zookeeper}
        )
        for broker_id, listener in self._listeners.items():
            home = directory / f"broker-{broker_id}"
            self.log_dirs[broker_id] = (home / "one", home / "two")
            own_settings = {
                "node.id": str(broker_id),
                "listeners": str(listener),
                "log.dirs": ",".join(map(str, self.log_dirs[broker_id])),
                **store,
            }
            self.nodes[broker_id] = PenstockBroker(
                home, {**SETTINGS, **(settings or {}), **own_settings}
            )

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, those that are down included."""
        return ",".join(listener.address for listener in self._listeners.values())

    def __enter__(self) -> Self:
        try:
            if not self._uses_zookeeper:
                store = EmbeddedStore(self._directory / "metadata.db")
                self._store = StoreServer(store, self._directory / "store.sock")
            first, *_ = self.nodes.values()
            first.spawn()  # it creates the cluster
            first.wait_until_ready(START_SECONDS)
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts all brokers that are down, concurrently."""
        starting = [broker for broker in self.nodes.values() if not broker.is_running]
        for broker in starting:
            broker.spawn()
        for broker in starting:
            broker.wait_until_ready(START_SECONDS)

    def close(self) -> None:
        for broker in self.nodes.values():
            if broker.is_running:
                broker.kill()
        if self._store is not None:
            self._store.close()
        self._ports.close()

    def knows(self, topic: str, partitions: int) -> bool:
        """Returns whether every broker that runs names leaders of all partitions of a topic."""
        request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
        for broker_id, broker in self.nodes.items():
            if broker.is_running:
                listener = self._listeners[broker_id]
                with WireClient((listener.host, listener.port)) as client:
                    [described] = client.request(request, 9).topics
                led = [partition for partition in described.partitions if partition.leader_id >= 0]
                if len(led) != partitions:
                    return False
        return True

    def replica_directory(self, broker_id: int, topic: str, partition: int) -> Path | None:
        """Returns the directory of a replica, None if the broker has none."""
        directories = [
            log_dir / f"{topic}-{partition}"
            for log_dir in self.log_dirs[broker_id]
            if (log_dir / f"{topic}-{partition}").is_dir()
        ]
        assert len(directories) <= 1, directories
        return directories[0] if directories else None


class ClusterView:
    """The cluster as an admin client describes it, and waiting for its changes."""

    def __init__(self, cluster: ProcessCluster, admin: Admin) -> None:
        self._cluster = cluster
        self.admin = admin

    def create_topic(
        self, name: str, *replicas: Sequence[int], configs: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic with these replicas of its partitions.

        Then all of them are in sync, and every broker knows the topic.
        """
        assignments = {number: tuple(brokers) for number, brokers in enumerate(replicas)}
        self.admin.create_topics([NewTopic(name, assignments=assignments, configs=configs or {})])
        self.wait_until(
            lambda: len(self.partitions(name)) == len(replicas) and self.is_in_sync(name),
            f"every replica of {name} in sync",
        )
        self.wait_until(lambda: self._cluster.knows(name, len(replicas)), f"{name} on all brokers")

    def partitions(self, topic: str) -> tuple[PartitionDescription, ...]:
        """Returns no partitions if the topic is not in the metadata yet."""
        try:
            return self.admin.describe_topics([topic])[topic].partitions
        except AdminError:
            return ()

    def partition(self, topic: str, number: int = 0) -> PartitionDescription:
        return self.partitions(topic)[number]

    def leaders(self, topic: str) -> dict[int, int | None]:
        return {partition.partition: partition.leader for partition in self.partitions(topic)}

    def is_in_sync(self, topic: str) -> bool:
        return all(
            partition.leader is not None and set(partition.isr) == set(partition.replicas)
            for partition in self.partitions(topic)
        )

    def controller_id(self) -> int:
        """Waits for a controller, and returns its id."""
        self.wait_until(
            lambda: self.admin.describe_cluster().controller is not None, "a controller"
        )
        controller = self.admin.describe_cluster().controller
        assert controller is not None
        return controller.id

    def group_coordinated_by(self, broker_id: int, prefix: str) -> str:
        """Returns a group id whose coordinator is this broker."""
        leaders = self.leaders(GROUPS_LOG)
        names = (f"{prefix}-{number}" for number in range(1000))
        return next(
            name for name in names if leaders[partition_for(name, len(leaders))] == broker_id
        )

    def is_well(self) -> bool:
        """Elects the preferred leaders; returns whether all of them lead, with all in sync."""
        with suppress(AdminError):  # some replicas have not caught up
            self.admin.elect_leaders(ElectionType.PREFERRED)
        descriptions = self.admin.describe_topics(self.admin.list_topics(include_internal=True))
        return all(
            partition.leader == partition.replicas[0]
            and set(partition.isr) == set(partition.replicas)
            for topic in descriptions.values()
            for partition in topic.partitions
        )

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"
            time.sleep(0.05)

    def wait_for_leader(self, topic: str, number: int, leader: int | None) -> None:
        self.wait_until(
            lambda: self.leaders(topic).get(number) == leader,
            f"broker {leader} leads {TopicPartition(topic, number)}",
        )
