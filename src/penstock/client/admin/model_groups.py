"""Values of the admin client: groups and their members."""

from enum import StrEnum
from typing import NamedTuple, Self

from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.security.acl import AclOperation


class NamedEnum(StrEnum):
    """An enumeration by the names of the protocol, with `Unknown` for all others."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the member of this name, without regard to case."""
        name = text.lower()
        return next((member for member in cls if member.lower() == name), cls("Unknown"))


class GroupState(NamedEnum):
    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(NamedEnum):
    UNKNOWN = "Unknown"
    CONSUMER = "Consumer"
    """The consumer protocol (KIP-848)."""
    CLASSIC = "Classic"
    SHARE = "Share"
    STREAMS = "Streams"


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    """`consumer` for consumers, empty for groups that only have offsets."""
    state: GroupState | None
    """None from brokers before Kafka 2.6."""
    type: GroupType | None
    """None from brokers before Kafka 3.8."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it has offsets, but never had members."""
        return self.type in (None, GroupType.CLASSIC) and not self.protocol_type


class MemberDescription(NamedTuple):
    member_id: str
    group_instance_id: str | None
    """Set for static members."""
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    """Sorted."""
    subscribed_topics: tuple[str, ...] | None = None
    """Sorted; None if the member is not a consumer."""
    target_assignment: tuple[TopicPartition, ...] | None = None
    """The assignment after the rebalance; None in classic groups."""
    member_epoch: int | None = None
    """None in classic groups."""
    is_classic: bool | None = None
    """In a consumer group: whether the member uses the classic protocol."""
    rack_id: str | None = None
    subscribed_topic_regex: str | None = None


class GroupDescription(NamedTuple):
    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    assignor: str
    """The assignor in use (the protocol of a classic group), or empty."""
    coordinator: Node
    members: tuple[MemberDescription, ...]
    group_epoch: int | None = None
    """None in classic groups."""
    target_assignment_epoch: int | None = None
    """None in classic groups."""
    authorized_operations: frozenset[AclOperation] | None = None
    """None unless they were requested."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it has offsets, but never had members."""
        return self.type is GroupType.CLASSIC and not self.protocol_type


class MemberToRemove(NamedTuple):
    """A member to remove from its group, by its instance id (static) or its member id."""

    group_instance_id: str | None = None
    member_id: str = ""
