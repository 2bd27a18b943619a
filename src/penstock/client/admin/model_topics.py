"""What the admin client takes and gives about topics, partitions, records and offsets."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from penstock.client.admin.model_configs import ConfigEntry
from penstock.security.acl import AclOperation


class NewTopic(NamedTuple):
    """A topic to create. Without numbers the broker's defaults hold (Kafka 2.4 and newer)."""

    name: str
    num_partitions: int = -1
    """-1 for the broker's `num.partitions`."""
    replication_factor: int = -1
    """-1 for the broker's `default.replication.factor`."""
    assignments: Mapping[int, Sequence[int]] | None = None
    """The brokers of each partition, the preferred leader first; instead of the two numbers."""
    configs: Mapping[str, str | None] | None = None


class CreatedTopic(NamedTuple):
    """What the broker made of a `NewTopic`; brokers before Kafka 2.4 do not tell more than that."""

    name: str
    topic_id: UUID | None
    num_partitions: int
    """-1 where the broker did not tell."""
    replication_factor: int
    configs: dict[str, ConfigEntry] | None
    """None where the broker did not tell, or may not (DESCRIBE_CONFIGS on the topic is missing)."""


class NewPartitions(NamedTuple):
    """How many partitions a topic shall have in all, and where the new ones shall lie."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition, the preferred leader first; None: the broker chooses."""


class TopicListing(NamedTuple):
    name: str
    topic_id: UUID | None
    """None from brokers before Kafka 2.8."""
    is_internal: bool


class PartitionDescription(NamedTuple):
    """A partition and the ids of the brokers that have it."""

    partition: int
    leader: int | None
    leader_epoch: int
    """-1 where the broker did not tell."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    """None from brokers that do not know them (KIP-966)."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    """By their numbers, from 0."""
    authorized_operations: frozenset[AclOperation] | None = None
    """None unless asked for."""


class OffsetSpec(IntEnum):
    """Offsets that can be asked for by name; a time in ms since 1970 asks for the first from it on.

    The last three are about tiered storage.
    """

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ListedOffset(NamedTuple):
    offset: int
    """-1 where there is none: no record as late as the time, nothing in tiered storage."""
    timestamp: int
    """Of the record; -1 where the offset was not asked for by time."""
    leader_epoch: int | None


class TopicPartitionReplica(NamedTuple):
    """A replica: a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class PartitionReassignment(NamedTuple):
    """A move of a partition that is under way."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1
