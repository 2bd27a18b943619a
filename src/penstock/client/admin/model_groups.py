"""What the admin client takes and gives about groups."""

from enum import StrEnum
from typing import NamedTuple, Self

from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.security.acl import AclOperation


class Word(StrEnum):
    """A word of the protocol, read without regard to case; any other one is `Unknown`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        wanted = text.lower()
        return next((word for word in cls if word.lower() == wanted), cls("Unknown"))


class GroupState(Word):
    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(Word):
    UNKNOWN = "Unknown"
    CONSUMER = "Consumer"
    """The newer protocol, KIP-848."""
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
        """It has offsets, and never had members."""
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
    """Sorted; None where the member's metadata is not that of a consumer."""
    target_assignment: tuple[TopicPartition, ...] | None = None
    """Where the rebalance leads; None in classic groups."""
    member_epoch: int | None = None
    """None in classic groups."""
    is_classic: bool | None = None
    """In a consumer group: whether the member still speaks the classic protocol."""
    rack_id: str | None = None
    subscribed_topic_regex: str | None = None


class GroupDescription(NamedTuple):
    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str
    assignor: str
    """The assignor in use (of a classic group: its protocol); empty while there is none."""
    coordinator: Node
    members: tuple[MemberDescription, ...]
    group_epoch: int | None = None
    """None in classic groups."""
    target_assignment_epoch: int | None = None
    """None in classic groups."""
    authorized_operations: frozenset[AclOperation] | None = None
    """None unless asked for."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """It has offsets, and never had members."""
        return self.type is GroupType.CLASSIC and not self.protocol_type


class MemberToRemove(NamedTuple):
    """A member to put out of its group: by its instance id (static), or by its member id."""

    group_instance_id: str | None = None
    member_id: str = ""
