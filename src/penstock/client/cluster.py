"""What a client knows of the cluster: nodes, topics, partitions and who leads them.

`Cluster` is a snapshot that never changes, so that any thread may read it. `ClusterMetadata` holds
the latest one, knows which topics are wanted, and says when it is time to ask again.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_LEADER: Final = -1


class Node(NamedTuple):
    """A broker and where it is. Those of `bootstrap_servers` have ids from -1 downwards."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.id < 0 else f"{host}:{self.port} (id {self.id})"


class PartitionInfo(NamedTuple):
    """A partition as the cluster describes it; -1 where a leader or its epoch is not known."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode


class TopicInfo(NamedTuple):
    """A topic. `partitions` are in their order, all of them; with an `error` there are none."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    error: ErrorCode


class Cluster:
    """A snapshot of the cluster, replaced as a whole."""

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
            {each.topic_id: name for name, each in topics.items() if each.topic_id != ZERO_UUID}
        )
        self.controller_id = controller_id
        self.cluster_id = cluster_id

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader(self, partition: TopicPartition) -> Node | None:
        found = self.partition(partition)
        return None if found is None else self.nodes.get(found.leader)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None where that is not known."""
        found = self.topics.get(topic)
        return len(found.partitions) if found is not None and found.partitions else None


class ClusterMetadata:
    """The latest snapshot and what is wanted of the next. Used on the client's own loop."""

    def __init__(
        self, bootstrap: Iterable[Node], *, max_age_ms: int, max_idle_ms: int | None = None
    ) -> None:
        self.bootstrap = {node.id: node for node in bootstrap}
        self.cluster = Cluster(self.bootstrap, {})
        self.version = 0
        """Rises with every update."""
        self.listeners: list[Callable[[Cluster, Cluster], None]] = []
        """Called with the snapshots before and after an update."""
        self.on_request: Callable[[], None] = lambda: None
        """Called when an update has become due before its time."""
        self.all_topics = False
        """Whether every topic is wanted, not only those that were named."""
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._wanted: dict[str, int] = {}
        """Each topic, and when it was last asked for."""
        self._updated_ms: int | None = None
        self._update_requested = True

    def want(self, topics: Iterable[str], now_ms: int) -> bool:
        """Keep these topics up to date; whether one is new, so that an update is due."""
        is_new = False
        for topic in topics:
            if topic not in self._wanted and not (self.all_topics and topic in self.cluster.topics):
                is_new = True
            self._wanted[topic] = now_ms
        if is_new:
            self.request_update()
        return is_new

    def unwant(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._wanted.pop(topic, None)

    def want_only(self, topics: Iterable[str], now_ms: int) -> bool:
        """These topics and no others; whether one is new."""
        wanted = set(topics)
        self.unwant(set(self._wanted) - wanted)
        return self.want(wanted, now_ms)

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(self._wanted)

    def request_update(self) -> None:
        """Something turned out to be stale: ask again soon."""
        self._update_requested = True
        self.on_request()

    def needs_refresh(self, now_ms: int) -> bool:
        if self._update_requested or self._updated_ms is None:
            return True
        return now_ms - self._updated_ms >= self._max_age_ms

    def refresh_in_ms(self, now_ms: int) -> int:
        """How long the snapshot is good for, if nothing happens."""
        if self._update_requested or self._updated_ms is None:
            return 0
        return max(0, self._updated_ms + self._max_age_ms - now_ms)

    def age_ms(self, now_ms: int) -> int | None:
        """Since the last update; None before the first."""
        return None if self._updated_ms is None else now_ms - self._updated_ms

    def update(self, response: MetadataResponse, now_ms: int, *, complete: bool) -> None:
        """Take the answer of a broker. `complete` where it is about all that was wanted.

        Of each partition the newest leader epoch wins: brokers hear of changes at different times.
        """
        old = self.cluster
        self._forget_idle(now_ms)
        nodes = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        topics = {} if complete else dict(old.topics)
        for described in response.topics:
            name = described.name
            if name is None:
                name = old.topic_names.get(described.topic_id)
                if name is None:
                    continue
            if self.all_topics or name in self._wanted or not complete:
                topics[name] = _topic(name, described, old.topics.get(name))
        self.cluster = Cluster(
            nodes or old.nodes, topics, response.controller_id, response.cluster_id
        )
        if complete:
            self._updated_ms = now_ms
            self._update_requested = any(
                _is_in_doubt(topic) for name, topic in topics.items() if name in self._wanted
            )
        self.version += 1
        self._tell(old)

    def update_leader(
        self, partition: TopicPartition, leader: int, leader_epoch: int, nodes: Iterable[Node]
    ) -> bool:
        """Take a new leader that a Produce or Fetch answer named; whether it was news."""
        old = self.cluster
        known = old.partition(partition)
        if known is None or leader_epoch <= known.leader_epoch:
            return False
        topic = old.topics[partition.topic]
        partitions = list(topic.partitions)
        partitions[partition.partition] = known._replace(leader=leader, leader_epoch=leader_epoch)
        merged = {**old.nodes, **{node.id: node for node in nodes}}
        if leader not in merged:
            return False
        self.cluster = Cluster(
            merged,
            {**old.topics, topic.name: topic._replace(partitions=tuple(partitions))},
            old.controller_id,
            old.cluster_id,
        )
        self.version += 1
        self._tell(old)
        return True

    def rebootstrap(self) -> None:
        """Forget where brokers are: none of them answers. Topics and epochs are kept."""
        old = self.cluster
        self.cluster = Cluster(self.bootstrap, old.topics, -1, old.cluster_id)
        self.request_update()
        self._tell(old)

    def _tell(self, old: Cluster) -> None:
        for listener in list(self.listeners):
            listener(old, self.cluster)

    def _forget_idle(self, now_ms: int) -> None:
        limit = self._max_idle_ms
        if limit is not None:
            self._wanted = {
                name: used for name, used in self._wanted.items() if now_ms - used < limit
            }


def _is_in_doubt(topic: TopicInfo) -> bool:
    return topic.error.retriable or any(each.leader < 0 for each in topic.partitions)


def _topic(name: str, described: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
    error = _error(described.error_code)
    same = known is not None and known.topic_id == described.topic_id
    partitions = tuple(
        _partition(name, each, known if same else None)
        for each in sorted(described.partitions, key=lambda each: each.partition_index)
    )
    if not partitions and error.retriable and known is not None and same:
        partitions = known.partitions
    return TopicInfo(name, described.topic_id, described.is_internal, partitions, error)


def _partition(
    topic: str, described: MetadataResponsePartition, known: TopicInfo | None
) -> PartitionInfo:
    index = described.partition_index
    if known is not None and index < len(known.partitions):
        before = known.partitions[index]
        if 0 <= described.leader_epoch < before.leader_epoch:
            return before
    return PartitionInfo(
        topic,
        index,
        described.leader_id,
        described.leader_epoch,
        tuple(described.replica_nodes),
        tuple(described.isr_nodes),
        tuple(described.offline_replicas),
        _error(described.error_code),
    )


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
