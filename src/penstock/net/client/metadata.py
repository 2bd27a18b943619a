"""The metadata of a cluster as one `NetworkClient` keeps it: the snapshot and when to update it."""

from collections.abc import Callable, Iterable, Mapping

from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster, Node, PartitionInfo, TopicInfo
from penstock.net.client.errors import error_code_of
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class ClusterMetadata:
    """The latest snapshot of a cluster, the topics of interest, and when to request an update.

    Used on the event loop of its `NetworkClient`.
    """

    def __init__(
        self, bootstrap: Iterable[Node], *, max_age_ms: int, max_idle_ms: int | None = None
    ) -> None:
        self.bootstrap = {node.id: node for node in bootstrap}
        self.cluster = Cluster(self.bootstrap, {})
        self.version = 0
        """Increases with every update."""
        self.listeners: list[Callable[[Cluster, Cluster], None]] = []
        """Called with the old and the new snapshot after every update."""
        self.on_request: Callable[[], None] = lambda: None
        """Called when an update is due before the metadata has reached its maximum age."""
        self.all_topics = False
        """Whether all topics are of interest, not only those added by name."""
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._topics: dict[str, int] = {}
        """The topics of interest, each with the time of its last use."""
        self._updated_ms: int | None = None
        self._update_requested = True

    def add_topics(self, topics: Iterable[str], now_ms: int) -> bool:
        """Keeps these topics up to date. Returns whether one is new; then an update is due."""
        is_new = False
        for topic in topics:
            if topic not in self._topics and not (self.all_topics and topic in self.cluster.topics):
                is_new = True
            self._topics[topic] = now_ms
        if is_new:
            self.request_update()
        return is_new

    def remove_topics(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._topics.pop(topic, None)

    def set_topics(self, topics: Iterable[str], now_ms: int) -> bool:
        """Keeps these topics and no others up to date. Returns whether one is new."""
        names = set(topics)
        self.remove_topics(set(self._topics) - names)
        return self.add_topics(names, now_ms)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._topics)

    def request_update(self) -> None:
        """Has the metadata updated soon, because it turned out to be stale."""
        self._update_requested = True
        self.on_request()

    def needs_refresh(self, now_ms: int) -> bool:
        if self._update_requested or self._updated_ms is None:
            return True
        return now_ms - self._updated_ms >= self._max_age_ms

    def refresh_in_ms(self, now_ms: int) -> int:
        """Returns the time until the next regular update; 0 if one is due."""
        if self._update_requested or self._updated_ms is None:
            return 0
        return max(0, self._updated_ms + self._max_age_ms - now_ms)

    def age_ms(self, now_ms: int) -> int | None:
        """Returns the time since the last update; None before the first."""
        return None if self._updated_ms is None else now_ms - self._updated_ms

    def update(self, response: MetadataResponse, now_ms: int, *, complete: bool) -> None:
        """Applies a response. `complete` says that it covers all topics of interest.

        Of each partition the newest leader epoch wins, because brokers learn of changes at
        different times.
        """
        old = self.cluster
        self._remove_idle_topics(now_ms)
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        topics = {} if complete else dict(old.topics)
        for described in response.topics:
            name = described.name
            if name is None:
                name = old.topic_names.get(described.topic_id)
                if name is None:
                    continue
            if self.all_topics or name in self._topics or not complete:
                topics[name] = _topic_info(name, described, old.topics.get(name))
        self.cluster = Cluster(
            nodes or old.nodes, topics, response.controller_id, response.cluster_id
        )
        if complete:
            self._updated_ms = now_ms
            self._update_requested = any(
                _needs_update(topic) for name, topic in topics.items() if name in self._topics
            )
        self.version += 1
        self._notify(old)

    def update_leader(
        self, partition: TopicPartition, leader: int, leader_epoch: int, nodes: Iterable[Node]
    ) -> bool:
        """Applies a leader that a Produce or Fetch response named. Returns whether it is newer."""
        old = self.cluster
        current = old.partition(partition)
        if current is None or leader_epoch <= current.leader_epoch:
            return False
        topic = old.topics[partition.topic]
        partitions = list(topic.partitions)
        partitions[partition.partition] = current._replace(leader=leader, leader_epoch=leader_epoch)
        all_nodes = {**old.nodes, **{node.id: node for node in nodes}}
        if leader not in all_nodes:
            return False
        self.cluster = Cluster(
            all_nodes,
            {**old.topics, topic.name: topic._replace(partitions=tuple(partitions))},
            old.controller_id,
            old.cluster_id,
        )
        self.version += 1
        self._notify(old)
        return True

    def set_nodes(self, nodes: Mapping[int, Node]) -> None:
        """Replaces the brokers. Topics and leader epochs are kept."""
        old = self.cluster
        self.cluster = Cluster(nodes, old.topics, -1, old.cluster_id)
        self._notify(old)

    def rebootstrap(self) -> None:
        """Replaces the brokers with the bootstrap servers, because none of them responds."""
        self.set_nodes(self.bootstrap)
        self.request_update()

    def _notify(self, old: Cluster) -> None:
        for listener in list(self.listeners):
            listener(old, self.cluster)

    def _remove_idle_topics(self, now_ms: int) -> None:
        limit = self._max_idle_ms
        if limit is not None:
            self._topics = {
                name: used for name, used in self._topics.items() if now_ms - used < limit
            }


def _needs_update(topic: TopicInfo) -> bool:
    return topic.error.retriable or any(info.leader < 0 for info in topic.partitions)


def _topic_info(
    name: str, described: MetadataResponseTopic, previous: TopicInfo | None
) -> TopicInfo:
    error = error_code_of(described.error_code)
    if previous is not None and previous.topic_id != described.topic_id:
        previous = None
    partitions = tuple(
        _partition_info(name, partition, previous)
        for partition in sorted(described.partitions, key=lambda part: part.partition_index)
    )
    if not partitions and error.retriable and previous is not None:
        partitions = previous.partitions
    return TopicInfo(name, described.topic_id, described.is_internal, partitions, error)


def _partition_info(
    topic: str, described: MetadataResponsePartition, previous: TopicInfo | None
) -> PartitionInfo:
    index = described.partition_index
    if previous is not None and index < len(previous.partitions):
        info = previous.partitions[index]
        if 0 <= described.leader_epoch < info.leader_epoch:
            return info
    return PartitionInfo(
        topic,
        index,
        described.leader_id,
        described.leader_epoch,
        tuple(described.replica_nodes),
        tuple(described.isr_nodes),
        tuple(described.offline_replicas),
        error_code_of(described.error_code),
    )
