"""A snapshot of a cluster: its brokers, topics and partitions. Any thread may read it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID

NO_LEADER: Final = -1


class Node(NamedTuple):
    """A broker and its address. The bootstrap servers have ids from -1 downwards."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.id < 0 else f"{host}:{self.port} (id {self.id})"


class PartitionInfo(NamedTuple):
    """A partition. `leader` and `leader_epoch` are -1 when they are unknown."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode


class TopicInfo(NamedTuple):
    """A topic with all its partitions in order; with an `error` it may have none."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    error: ErrorCode


class Cluster:
    """The brokers and topics of a cluster at one moment."""

    __slots__ = ("cluster_id", "controller_id", "nodes", "topic_names", "topics")

    def __init__(
        self,
        nodes: Mapping[int, Node],
        topics: Mapping[str, TopicInfo],
        controller_id: int = -1,
        cluster_id: str | None = None,
    ) -> None:
        self.nodes = MappingProxyType(dict(nodes))
        self.topics = MappingProxyType(dict(topics))
        self.topic_names = MappingProxyType(
            {topic.topic_id: name for name, topic in topics.items() if topic.topic_id != ZERO_UUID}
        )
        self.controller_id = controller_id
        self.cluster_id = cluster_id

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader(self, partition: TopicPartition) -> Node | None:
        info = self.partition(partition)
        return None if info is None else self.nodes.get(info.leader)

    def partition_count(self, topic: str) -> int | None:
        """Returns the number of partitions of a topic, or None if it is unknown."""
        info = self.topics.get(topic)
        return len(info.partitions) if info is not None and info.partitions else None
