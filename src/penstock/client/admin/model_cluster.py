"""What the admin client takes and gives about brokers, features, folders and the quorum."""

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
    """A broker that takes requests for the controller; None where there is none now."""
    nodes: tuple[Node, ...]
    """By id."""
    authorized_operations: frozenset[AclOperation] | None = None
    """None unless asked for."""
    fenced: frozenset[int] = frozenset()
    """Ids of brokers that are registered but not up; only where asked for."""


class VersionRange(NamedTuple):
    min_version: int
    max_version: int


class FeatureMetadata(NamedTuple):
    """Feature levels: those that the cluster has agreed on, and those that the broker could do."""

    finalized: dict[str, VersionRange]
    finalized_epoch: int | None
    supported: dict[str, VersionRange]


class FeatureUpdate(NamedTuple):
    max_version_level: int
    """0 takes the feature away (a downgrade)."""
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class ReplicaInfo(NamedTuple):
    """A replica in a folder of a broker."""

    size: int
    """Bytes of its log segments."""
    offset_lag: int
    """How far it is behind: of a future replica behind the current one, else behind the HW."""
    is_future: bool
    """It is being moved into this folder."""


class LogDirDescription(NamedTuple):
    """A folder of `log.dirs`."""

    error: KafkaError | None
    """Set where the folder is offline; `replicas` is empty then."""
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    """Of the volume; None from brokers before Kafka 3.3."""
    usable_bytes: int | None
    is_cordoned: bool = False
    """Takes no new replicas."""


class ReplicaLogDir(NamedTuple):
    """Where a replica lies, and where it is moving to."""

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
    """The state of the KRaft quorum that holds the cluster's metadata."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: dict[int, tuple[QuorumEndpoint, ...]]
    """Where the controllers listen, by id; empty from brokers before Kafka 3.9."""


class ApiVersionRange(NamedTuple):
    """An API that a broker serves."""

    api_key: int
    name: str
    """As Kafka names it, `CreateTopics`; `UNKNOWN(99)` for one that this client does not know."""
    min_version: int
    max_version: int
    usable: int | None
    """The newest version that both have; None where there is none."""


class BrokerApiVersions(NamedTuple):
    """What one broker serves."""

    node: Node
    apis: tuple[ApiVersionRange, ...]
    """By api key."""
    error: KafkaError | None = None
    """Set where the broker could not be asked; `apis` is empty then."""
