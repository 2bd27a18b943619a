"""A cluster of Apache Kafka's brokers and Penstock's, seen from each of its brokers."""

import json
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from penstock.client import Admin
from penstock.client.admin.model_topics import ElectionType, NewTopic
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker.in_process import WireClient
from tests.support.history.cluster import (
    BROKER_IDS,
    LOGIN_PORT,
    SESSION_TIMEOUT_S,
    HistoryCluster,
)
from tests.support.history.network import CLIENT_PORT
from tests.support.kafka.tools import Shell

KAFKA = 1
"""The broker that is Apache Kafka's; the other two are Penstock's."""
WAIT_S = 45.0
METADATA_VERSION = 12


class MixedView:
    """What the brokers of a cluster say and store, and waiting until they agree."""

    def __init__(
        self, cluster: HistoryCluster, admin: Admin, zookeeper: KazooClient, shell: Shell
    ) -> None:
        """`shell` has the tools of the newest Kafka."""
        self.cluster = cluster
        self.admin = admin
        self.zookeeper = zookeeper
        self.shell = shell

    # --- single brokers

    @contextmanager
    def connected(self, broker_id: int) -> Iterator[WireClient]:
        """Connects to one broker, which handles every request itself."""
        client = WireClient((self.cluster.network.address(broker_id), CLIENT_PORT))
        try:
            yield client
        finally:
            client.sock.close()

    def request(self, broker_id: int, request: Message, version: int) -> Any:
        with self.connected(broker_id) as client:
            return client.request(request, version)

    def login_address(self, broker_id: int) -> str:
        """The listener of a broker at which clients log in."""
        return f"{self.cluster.network.address(broker_id)}:{LOGIN_PORT}"

    def replica_directory(self, broker_id: int, topic: str, partition: int) -> Path:
        return self.cluster.data_directory(broker_id) / f"{topic}-{partition}"

    @property
    def running(self) -> list[int]:
        return [
            broker_id for broker_id in BROKER_IDS if self.cluster.processes[broker_id].is_running
        ]

    # --- the controller

    def move_controller_to(self, broker_ids: Collection[int]) -> int:
        """Removes the controller's node until one of these brokers is elected; returns its id.

        The others are paused meanwhile, for less than their session timeout: whichever broker is
        the fastest would be elected again and again.
        """
        others = [
            self.cluster.processes[broker_id]
            for broker_id in BROKER_IDS
            if broker_id not in broker_ids and self.cluster.processes[broker_id].is_running
        ]

        def has_moved() -> bool:
            if self.stored_controller() in broker_ids:
                return True
            for process in others:
                process.send_signal(signal.SIGSTOP)
            try:
                if self.stored_controller() is not None:
                    self.zookeeper.delete("/controller")
                deadline = time.monotonic() + SESSION_TIMEOUT_S / 2
                while self.stored_controller() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
            finally:
                for process in others:
                    process.send_signal(signal.SIGCONT)
            return self.stored_controller() in broker_ids

        self.wait_until(has_moved, f"a controller among {broker_ids}")
        controller_id = self.stored_controller()
        assert controller_id is not None
        self.wait_until(lambda: self._named_controllers() == {controller_id}, "one controller")
        return controller_id

    def stored_controller(self) -> int | None:
        try:
            data, _ = self.zookeeper.get("/controller")
        except NoNodeError:
            return None
        broker_id: int = json.loads(data)["brokerid"]
        return broker_id

    def _named_controllers(self) -> set[int]:
        return {
            self.request(broker_id, MetadataRequest([]), METADATA_VERSION).controller_id
            for broker_id in self.running
        }

    # --- topics

    def create_topic(
        self, name: str, *replicas: Sequence[int], configs: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic with these replicas; then every broker knows the leaders."""
        assignments = {number: tuple(brokers) for number, brokers in enumerate(replicas)}
        self.admin.create_topics([NewTopic(name, assignments=assignments, configs=configs or {})])
        self.wait_for_partitions(name, *replicas)

    def wait_for_partitions(self, name: str, *replicas: Sequence[int]) -> None:
        """Waits until every broker describes these replicas, all in sync, led by the first."""
        expected = [(brokers[0], list(brokers), set(brokers)) for brokers in replicas]

        def problem() -> str:
            described = {broker_id: self.describe(broker_id, name) for broker_id in self.running}
            states = {
                broker_id: [
                    (p.leader_id, p.replica_nodes, set(p.isr_nodes))
                    for p in sorted(topic.partitions, key=lambda p: p.partition_index)
                ]
                for broker_id, topic in described.items()
            }
            if any(state != expected for state in states.values()):
                return f"{name} is {states}, not {expected}"
            epochs = {
                (topic.topic_id, *(p.leader_epoch for p in _in_order(topic)))
                for topic in described.values()
            }
            return "" if len(epochs) == 1 else f"brokers name different epochs: {epochs}"

        self.cluster.poll(problem, WAIT_S)

    def describe(self, broker_id: int, name: str) -> Any:
        """Returns what the Metadata of a broker say about a topic."""
        request = MetadataRequest(
            [MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        [topic] = self.request(broker_id, request, METADATA_VERSION).topics
        return topic

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.poll(lambda: "" if condition() else f"no {what}", WAIT_S)

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Makes a broker the preferred leader of a partition with three replicas, and elects it."""
        others = [number for number in BROKER_IDS if number != broker_id]
        replicas = (broker_id, *others)
        key = TopicPartition(topic, partition)
        self.admin.alter_partition_reassignments({key: replicas})
        self.wait_until(lambda: not self.admin.list_partition_reassignments(), "end of the moves")
        self.cluster.poll(lambda: self._elect(key, broker_id), WAIT_S)

    def _elect(self, key: TopicPartition, broker_id: int) -> str:
        leader = self.cluster.leader_of(key.topic, key.partition)
        if leader == broker_id:
            return ""
        self.admin.elect_leaders(ElectionType.PREFERRED, [key])
        return f"{key} is led by {leader}"


def _in_order(topic: Any) -> list[Any]:
    return sorted(topic.partitions, key=lambda partition: partition.partition_index)
