"""The cluster metadata as values: records, their keys, and changes to them.

A record is the content of one node of the metadata store. A `Change` puts a record or deletes the
record of a key. A list of changes is committed to the store atomically and then applied to every
broker's `ClusterImage`; nothing else changes an image.

Records are tagged with their class names, so that they can be sent between processes.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from penstock.core.ids import TopicId, TopicPartition

DEFAULT_ENTITY = "<default>"
"""The entity name of the defaults for users, client ids, IP addresses or brokers."""


class SecurityProtocol(Enum):
    """Whether a listener uses TLS and whether its clients authenticate with SASL (X1)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    """The address at which clients of one listener reach a broker."""

    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    @property
    def address(self) -> str:
        """`host:port`, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


# --- keys: the node that a record belongs to. Keys of different kinds are never equal, so that they
# can share a dictionary: those with one field are no tuples.


class ClusterKey(Struct, frozen=True):
    """A node that exists once: `cluster_id`, `controller`, `controller_epoch`, …"""

    name: str


class BrokerKey(Struct, frozen=True):
    broker_id: int


class TopicKey(Struct, frozen=True):
    topic: str


class ConfigKey(NamedTuple):
    """An entity that has settings: `(("topics", "t"),)`, `(("users", "ann"), ("clients", "x"))`.

    Kinds are `topics`, `brokers`, `clients`, `users`, `ips`, `groups`, `client-metrics`. Names are
    unescaped; the store escapes them.
    """

    entity: tuple[tuple[str, str], ...]


class AclKey(NamedTuple):
    """A resource pattern: `resource_type` and `pattern_type` are Kafka's names in upper case."""

    resource_type: str
    pattern_type: str
    name: str


class DelegationTokenKey(Struct, frozen=True):
    token_id: str


class TopicDeletionKey(Struct, frozen=True):
    topic: str


class IsrChangeKey(Struct, frozen=True):
    sequence: int


class LogDirEventKey(Struct, frozen=True):
    sequence: int


Key = (
    ClusterKey
    | BrokerKey
    | TopicKey
    | TopicPartition
    | ConfigKey
    | AclKey
    | DelegationTokenKey
    | TopicDeletionKey
    | IsrChangeKey
    | LogDirEventKey
)


# --- records


class ClusterIdRecord(Struct, frozen=True, tag=True):
    """`/cluster/id`"""

    cluster_id: str

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("cluster_id")


class LoginSecretRecord(Struct, frozen=True, tag=True):
    """`/penstock/login_secret`: the key of the salts that unknown users get.

    It is the same after a restart and on all brokers, and known to them alone.
    """

    secret: bytes

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("login_secret")


class ControllerRecord(Struct, frozen=True, tag=True):
    """`/controller`: the broker that is the controller. Ephemeral."""

    broker_id: int
    timestamp_ms: int

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("controller")


class ControllerEpochRecord(Struct, frozen=True, tag=True):
    """`/controller_epoch`: rises with every controller election."""

    epoch: int

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("controller_epoch")


class FeaturesRecord(Struct, frozen=True, tag=True):
    """`/feature`: the finalized feature levels, which apply to every broker."""

    levels: Mapping[str, int]
    epoch: int

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("features")


class ProducerIdsRecord(Struct, frozen=True, tag=True):
    """`/latest_producer_id_block`: the block of producer ids that was allocated last."""

    broker_id: int
    block_start: int
    block_end: int
    """The last id of the block."""

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("producer_ids")


class BrokerRecord(Struct, frozen=True, tag=True):
    """`/brokers/ids/<id>`: a registered broker. Ephemeral."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    timestamp_ms: int
    features: Mapping[str, tuple[int, int]]
    epoch: int
    """Assigned by the store; rises with each registration."""
    is_unclean: bool = False
    """Whether the broker may have lost records that it had not flushed when it ended last."""
    reports_losses: bool = False
    """Whether the broker would set `is_unclean`: Kafka's brokers do not."""

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.broker_id)


class Assignment(Struct, frozen=True):
    """The replicas of a partition, the preferred leader first (R1).

    During a reassignment `replicas` is the union of old and new replicas; `adding` are the new ones
    and `removing` those that will be dropped.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


class TopicRecord(Struct, frozen=True, tag=True):
    """`/brokers/topics/<topic>`: a topic, its id and the replicas of its partitions."""

    topic: str
    topic_id: TopicId
    assignments: Mapping[int, Assignment]
    """By partition, numbered from 0 without a gap."""

    @property
    def key(self) -> TopicKey:
        return TopicKey(self.topic)


class PartitionRecord(Struct, frozen=True, tag=True):
    """`/brokers/topics/<topic>/partitions/<n>/state`: Kafka's LeaderAndIsr (R2, R4)."""

    topic: str
    partition: int
    leader: int
    """-1 if no replica can lead."""
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int
    """The version of the node: rises with every change of this record."""
    leader_recovery_state: int = 0
    """1 from an unclean election until the leader has recovered from it, else 0."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """Replicas that left the ISR when it fell below `min.insync.replicas`: they have every
    committed record as well (KIP-966). The brokers other than the controller do not know them."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ConfigRecord(Struct, frozen=True, tag=True):
    """`/config/<kind>/<name>`: the settings of an entity, including quotas and credentials."""

    entity: tuple[tuple[str, str], ...]
    values: Mapping[str, str]
    """Never empty: an entity without settings has no record."""

    @property
    def key(self) -> ConfigKey:
        return ConfigKey(self.entity)


class AccessControlEntry(NamedTuple):
    """Allows or denies an operation to a principal. Names are Kafka's, in upper case."""

    principal: str
    """`User:ann`, or `User:*` for all users."""
    host: str
    """An IP address, or `*`."""
    operation: str
    permission: str
    """`ALLOW` or `DENY`."""


class AclRecord(Struct, frozen=True, tag=True):
    """`/kafka-acl/<type>/<name>` and `/kafka-acl-extended/prefixed/<type>/<name>` (X3)."""

    resource_type: str
    pattern_type: str
    name: str
    entries: frozenset[AccessControlEntry]
    """Never empty: a pattern without entries has no record."""

    @property
    def key(self) -> AclKey:
        return AclKey(self.resource_type, self.pattern_type, self.name)


class DelegationTokenRecord(Struct, frozen=True, tag=True):
    """`/delegation_token/tokens/<id>`: a token with which others log in as its owner (KIP-48).

    Its HMAC, which is the password, is not stored: brokers derive it from the id and
    `delegation.token.secret.key`.
    """

    token_id: str
    owner: str
    """Principals are written `User:ann`."""
    requester: str
    """Who created it: the owner, or somebody who may create tokens for the owner (KIP-373)."""
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    """No renewal moves the expiry beyond this time."""
    expiry_ms: int

    @property
    def key(self) -> DelegationTokenKey:
        return DelegationTokenKey(self.token_id)


# --- requests and notifications to the controller, which it deletes when it has handled them

UNASSIGNED_SEQUENCE = -1
"""The sequence of a notification that is put: the store assigns one."""


class TopicDeletionRecord(Struct, frozen=True, tag=True):
    """`/admin/delete_topics/<topic>`: a topic that is to be deleted."""

    topic: str

    @property
    def key(self) -> TopicDeletionKey:
        return TopicDeletionKey(self.topic)


class ReassignPartitionsRecord(Struct, frozen=True, tag=True):
    """`/admin/reassign_partitions`: a request of old tools to move partitions."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("reassign_partitions")


class PreferredElectionRecord(Struct, frozen=True, tag=True):
    """`/admin/preferred_replica_election`: a request of old tools to elect preferred leaders."""

    partitions: tuple[TopicPartition, ...]

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("preferred_election")


class IsrChangeRecord(Struct, frozen=True, tag=True):
    """`/isr_change_notification/isr_change_<sequence>`: partitions whose node a leader changed.

    Only brokers before Kafka 2.7 write it; later ones send AlterPartition.
    """

    sequence: int
    partitions: tuple[TopicPartition, ...]

    @property
    def key(self) -> IsrChangeKey:
        return IsrChangeKey(self.sequence)


class LogDirEventRecord(Struct, frozen=True, tag=True):
    """`/log_dir_event_notification/log_dir_event_<sequence>`: a broker lost a log directory."""

    sequence: int
    broker_id: int

    @property
    def key(self) -> LogDirEventKey:
        return LogDirEventKey(self.sequence)


Record = (
    ClusterIdRecord
    | LoginSecretRecord
    | ControllerRecord
    | ControllerEpochRecord
    | FeaturesRecord
    | ProducerIdsRecord
    | BrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | AclRecord
    | DelegationTokenRecord
    | TopicDeletionRecord
    | ReassignPartitionsRecord
    | PreferredElectionRecord
    | IsrChangeRecord
    | LogDirEventRecord
)


class Put(NamedTuple):
    """Creates or changes the node of this record."""

    record: Record

    @property
    def key(self) -> Key:
        return self.record.key


class Delete(NamedTuple):
    """Deletes the node of this key, which must exist."""

    key: Key


Change = Put | Delete
