"""What the cluster remembers, as values: each record is the content of one node of the store.

A `Change` puts a record or deletes the one of a key. A list of changes is committed to the store as
a whole, and then applied to every `ClusterImage`, which nothing else changes.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from penstock.core.ids import TopicId, TopicPartition

DEFAULT_ENTITY = "<default>"
"""Stands for every user, client id, address or broker that has no settings of its own."""


class SecurityProtocol(Enum):
    """How the bytes of a listener travel and whether a client must say who it is (X1)."""

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
    """Where clients of one listener reach a broker."""

    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol


# --- keys: which node a record belongs to


class ClusterKey(NamedTuple):
    """A node of which there is one: `cluster`, `controller`, `controller_epoch`, …"""

    name: str


class BrokerKey(NamedTuple):
    broker_id: int


class TopicKey(NamedTuple):
    topic: str


class ConfigKey(NamedTuple):
    """An entity that has settings: `(("topics", "t"),)`, `(("users", "ann"), ("clients", "x"))`.

    Kinds are `topics`, `brokers`, `clients`, `users`, `ips`, `groups`, `client-metrics`. A name is
    as the user wrote it; the store escapes it.
    """

    entity: tuple[tuple[str, str], ...]


class AclKey(NamedTuple):
    """A resource pattern: `resource_type` and `pattern_type` are Kafka's names in upper case."""

    resource_type: str
    pattern_type: str
    name: str


Key = ClusterKey | BrokerKey | TopicKey | TopicPartition | ConfigKey | AclKey


# --- records


class ClusterIdRecord(Struct, frozen=True):
    """`/cluster/id`"""

    cluster_id: str

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("cluster_id")


class ControllerRecord(Struct, frozen=True):
    """`/controller`: the broker that decides. Ephemeral: it goes with the broker's session."""

    broker_id: int
    timestamp_ms: int

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("controller")


class ControllerEpochRecord(Struct, frozen=True):
    """`/controller_epoch`: counts the controllers."""

    epoch: int

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("controller_epoch")


class FeaturesRecord(Struct, frozen=True):
    """`/feature`: the finalized feature levels, which every broker of the cluster keeps to."""

    levels: Mapping[str, int]
    epoch: int

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("features")


class ProducerIdsRecord(Struct, frozen=True):
    """`/latest_producer_id_block`: the block of producer ids that was handed out last."""

    broker_id: int
    block_start: int
    block_end: int
    """The last id of the block."""

    @property
    def key(self) -> ClusterKey:
        return ClusterKey("producer_ids")


class BrokerRecord(Struct, frozen=True):
    """`/brokers/ids/<id>`: a broker that is up. Ephemeral."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    timestamp_ms: int
    features: Mapping[str, tuple[int, int]]
    epoch: int
    """Told by the store when the broker registered; rises with each registration."""

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.broker_id)


class Assignment(Struct, frozen=True):
    """The replicas of a partition, the preferred leader first (R1).

    While a reassignment runs, `replicas` is the union of old and new; `adding` are those that come,
    `removing` those that will go.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicRecord(Struct, frozen=True):
    """`/brokers/topics/<topic>`: a topic, its id and where its partitions live."""

    topic: str
    topic_id: TopicId
    assignments: Mapping[int, Assignment]
    """By partition, from 0 without a gap."""

    @property
    def key(self) -> TopicKey:
        return TopicKey(self.topic)


class PartitionRecord(Struct, frozen=True):
    """`/brokers/topics/<topic>/partitions/<n>/state`: who leads, and who is in sync (R2, R4)."""

    topic: str
    partition: int
    leader: int
    """-1 where no replica can lead."""
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int
    """Rises with every change of this record: the version of its node."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ConfigRecord(Struct, frozen=True):
    """`/config/<kind>/<name>`: the settings of an entity, quotas and SCRAM credentials too."""

    entity: tuple[tuple[str, str], ...]
    values: Mapping[str, str]
    """Never empty: an entity without settings has no record."""

    @property
    def key(self) -> ConfigKey:
        return ConfigKey(self.entity)


class AccessControlEntry(NamedTuple):
    """Who may (or may not) do what from where. Names are Kafka's, in upper case."""

    principal: str
    """`User:ann`, or `User:*` for everybody."""
    host: str
    """An address, or `*`."""
    operation: str
    permission: str
    """`ALLOW` or `DENY`."""


class AclRecord(Struct, frozen=True):
    """`/kafka-acl/<type>/<name>` and `/kafka-acl-extended/prefixed/<type>/<name>` (X3)."""

    resource_type: str
    pattern_type: str
    name: str
    entries: frozenset[AccessControlEntry]
    """Never empty: a pattern without entries has no record."""

    @property
    def key(self) -> AclKey:
        return AclKey(self.resource_type, self.pattern_type, self.name)


Record = (
    ClusterIdRecord
    | ControllerRecord
    | ControllerEpochRecord
    | FeaturesRecord
    | ProducerIdsRecord
    | BrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | AclRecord
)


class Put(NamedTuple):
    """Make the node of this record, or change it."""

    record: Record


class Delete(NamedTuple):
    """Remove the node of this key, which is there."""

    key: Key


Change = Put | Delete
