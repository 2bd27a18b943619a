"""Values of the admin client: topics, partitions, replicas and offsets."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from penstock.client.admin.model_configs import ConfigEntry
from penstock.security.acl import AclOperation


class NewTopic(NamedTuple):
    """A topic to create. The defaults of the numbers need Kafka 2.4."""

    name: str
    num_partitions: int = -1
    """-1 for the broker's `num.partitions`."""
    replication_factor: int = -1
    """-1 for the broker's `default.replication.factor`."""
    assignments: Mapping[int, Sequence[int]] | None = None
    """The brokers of each partition, the preferred leader first; instead of the two numbers."""
    configs: Mapping[str, str | None] | None = None


class CreatedTopic(NamedTuple):
    """A topic that was created; brokers before Kafka 2.4 only return its name."""

    name: str
    topic_id: UUID | None
    num_partitions: int
    """-1 if the broker did not return it."""
    replication_factor: int
    configs: dict[str, ConfigEntry] | None
    """None if the broker did not return them, or the ACL DESCRIBE_CONFIGS is missing."""


class NewPartitions(NamedTuple):
    """The new total number of partitions of a topic, and the replicas of the new ones."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition, the preferred leader first; by default the broker's."""


class TopicListing(NamedTuple):
    name: str
    topic_id: UUID | None
    """None from brokers before Kafka 2.8."""
    is_internal: bool


class PartitionDescription(NamedTuple):
    """A partition and the ids of its brokers."""

    partition: int
    leader: int | None
    leader_epoch: int
    """-1 if the broker did not return it."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    """None from brokers without KIP-966."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    """By their numbers, from 0."""
    authorized_operations: frozenset[AclOperation] | None = None
    """None unless they were requested."""


class OffsetSpec(IntEnum):
    """Named offsets of a partition. The last three concern tiered storage."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ListedOffset(NamedTuple):
    offset: int
    """-1 if there is none: no record as late as the time, or nothing in tiered storage."""
    timestamp: int
    """The timestamp of the record; -1 if the offset was not requested by time."""
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
