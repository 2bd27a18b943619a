"""Values of the admin client: brokers, features, log directories and the quorum."""

from typing import NamedTuple
from uuid import UUID

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.protocol.enums import UpgradeType
from penstock.security.acl import AclOperation


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    controller: Node | None
    """A broker that takes requests for the controller; None if there is none now."""
    nodes: tuple[Node, ...]
    """By id."""
    authorized_operations: frozenset[AclOperation] | None = None
    """None unless they were requested."""
    fenced: frozenset[int] = frozenset()
    """Ids of brokers that are registered but not up, if they were requested."""


class VersionRange(NamedTuple):
    min_version: int
    max_version: int


class FeatureMetadata(NamedTuple):
    """The finalized feature levels of the cluster, and those that a broker supports."""

    finalized: dict[str, VersionRange]
    finalized_epoch: int | None
    supported: dict[str, VersionRange]


class FeatureUpdate(NamedTuple):
    max_version_level: int
    """0 removes the feature (a downgrade)."""
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class ReplicaInfo(NamedTuple):
    """A replica in a log directory of a broker."""

    size: int
    """Bytes of its log segments."""
    offset_lag: int
    """The lag of a future replica behind the current one, else behind the high watermark."""
    is_future: bool
    """Whether it is being moved into this log directory."""


class LogDirDescription(NamedTuple):
    """A directory of `log.dirs`."""

    error: KafkaError | None
    """Set if the directory is offline; `replicas` is empty then."""
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    """Of the volume; None from brokers before Kafka 3.3."""
    usable_bytes: int | None
    is_cordoned: bool = False
    """Whether it accepts no new replicas."""


class ReplicaLogDir(NamedTuple):
    """The log directory of a replica, and the one that it is moved to."""

    current: str | None
    current_offset_lag: int
    future: str | None
    future_offset_lag: int


class QuorumReplica(NamedTuple):
    replica_id: int
    directory_id: UUID | None
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


class QuorumEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


class QuorumInfo(NamedTuple):
    """The state of the KRaft quorum that stores the cluster's metadata."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: dict[int, tuple[QuorumEndpoint, ...]]
    """The endpoints of the controllers, by id; empty from brokers before Kafka 3.9."""


class ApiVersionRange(NamedTuple):
    """An API that a broker serves."""

    api_key: int
    name: str
    """Kafka's name, such as `CreateTopics`; `UNKNOWN(99)` for an API that this client lacks."""
    min_version: int
    max_version: int
    usable: int | None
    """The newest version that client and broker have in common, or None."""


class BrokerApiVersions(NamedTuple):
    """The APIs of one broker."""

    node: Node
    apis: tuple[ApiVersionRange, ...]
    """By api key."""
    error: KafkaError | None = None
    """Set if the broker could not be reached; `apis` is empty then."""
