"""A classic group as a value: members, generation, protocol, and the requests that wait.

Decisions change a `copy()`, which becomes the group's next state; a group that a shard holds is
never changed in place.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from penstock.coordinator.group.group import Group
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.codec import decode
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.stored.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of the protocols that a member supports, the preferred one first."""


class ClassicGroupState(Enum):
    """The states under Kafka's names, as tools show them. A group that does not exist is `Dead`."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Waiter(NamedTuple):
    """A request that gets its response later, and the version of that response."""

    token: int
    version: int


class Member(Struct, frozen=True):
    """A member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It joined for the first time and has not received its response yet."""
    awaiting_join: Waiter | None = None
    awaiting_sync: Waiter | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for a protocol; KeyError if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id} has no protocol {protocol}")

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether an expired session is ignored, because the member waits for the coordinator."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None


@dataclass(slots=True)
class ClassicGroup:
    """A classic group. As a `StateUpdate` it replaces the group of the same id."""

    group_id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    previous_state: ClassicGroupState | None = None
    state_timestamp: int = -1
    protocol_type: str | None = None
    """None for a simple group, which only commits offsets."""
    protocol_name: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by group.instance.id."""
    pending_joins: set[str] = field(default_factory=set)
    """Member ids that were generated and have not joined yet."""
    pending_syncs: set[str] = field(default_factory=set)
    """Members of the current generation that have not fetched their assignment."""
    supported: dict[str, int] = field(default_factory=dict)
    """The number of members that support each protocol."""
    awaiting_joins: int = 0
    new_member_added: bool = False
    initial_delay: tuple[int, int] | None = None
    """While the first generation forms: the current delay, and the time that remains after it."""
    subscribed_topics: frozenset[str] | None = None
    """None if it is unknown, or if the members are not consumers."""

    def copy(self) -> "ClassicGroup":
        return replace(
            self,
            members=self.members.copy(),
            static_members=self.static_members.copy(),
            pending_joins=self.pending_joins.copy(),
            pending_syncs=self.pending_syncs.copy(),
            supported=self.supported.copy(),
        )

    def apply_to(self, groups: dict[str, Group]) -> None:
        groups[self.group_id] = self

    # --- members

    def put(self, member: Member) -> None:
        """Adds a member, or replaces it by its new value."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending_joins.discard(member.member_id)

    def drop(self, member_id: str) -> Member | None:
        """Removes a member, or an id that has not joined; the next member leads if it was the
        leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        return member

    def _count(self, member: Member, step: int) -> None:
        for name, _ in member.protocols:
            count = self.supported.get(name, 0) + step
            if count:
                self.supported[name] = count
            else:
                del self.supported[name]
        if member.awaiting_join is not None:
            self.awaiting_joins += step

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Returns whether the id belongs to a member, and to this instance if one is named."""
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_joins and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # --- protocols

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns whether a client with these protocols can join the current members."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        return self.protocol_type == protocol_type and any(
            self.supported.get(name, 0) == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes.

        Each member votes for the first of its protocols that all members support.
        """
        size = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == size}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=votes.__getitem__)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics of the members' subscriptions; None if they cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                data = member.metadata(self.protocol_name)
                topics.update(decode(ConsumerProtocolSubscription, 0, data, 2)[0].topics)
        except KafkaError:
            return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics


def group_value(group: ClassicGroup) -> GroupMetadataValue:
    """Returns the group as it is stored. All members must have the chosen protocol."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def group_of_value(key: GroupMetadataKey, value: GroupMetadataValue) -> ClassicGroup:
    """Returns the group that a record describes: stable or empty, without waiting requests."""
    group = ClassicGroup(
        group_id=key.group,
        state=ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY,
        state_timestamp=value.current_state_timestamp,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        generation=value.generation,
        leader=value.leader,
    )
    for member in value.members:
        has_timeout = member.rebalance_timeout != -1
        group.put(
            Member(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=(
                    member.rebalance_timeout if has_timeout else member.session_timeout
                ),
                session_timeout_ms=member.session_timeout,
                protocols=((value.protocol or "", member.subscription),),
                assignment=member.assignment,
            )
        )
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
