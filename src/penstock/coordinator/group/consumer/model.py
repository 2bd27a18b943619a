"""A consumer group (KIP-848): epochs, members, subscriptions, target assignment and owners.

Members are frozen. Only `replay` and `ConsumerGroupSoftState` change a group, in place: decisions
read it and create records, so that a heartbeat that changes nothing copies nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from uuid import UUID

from msgspec import Struct

from penstock.coordinator.group.group import Group
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.stored.consumer_group import ClassicMemberMetadata

LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2

UNKNOWN_TIME = (1 << 63) - 1
"""Later than any known time."""

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id, such as a member's target assignment."""

EpochsByPartition = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which it was assigned to the member."""


class ConsumerGroupState(Enum):
    """The states under Kafka's names, as tools show them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """How far a member has reconciled with its target assignment, as it is stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it can reach the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in the epoch, but other members still own some of its partitions."""
    UNKNOWN = 127
    """Written by a coordinator with more states: the member has to join again."""

    @classmethod
    def of(cls, value: int) -> "MemberState":
        return cls(value) if 0 <= value <= cls.UNRELEASED_PARTITIONS else cls.UNKNOWN


class ConsumerGroupMember(Struct, frozen=True):
    """A member of a consumer group."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: EpochsByPartition = {}
    pending_revocation: EpochsByPartition = {}
    """Partitions that it must give up and has not reported as given up."""
    classic: ClassicMemberMetadata | None = None
    """The contents of its JoinGroup; None for a member that sends ConsumerGroupHeartbeat."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """Returns the epoch since which the member owns the partition; None if it does not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        if epoch is None:
            epoch = self.pending_revocation.get(topic_id, {}).get(partition)
        return epoch


class ResolvedRegex(Struct, frozen=True):
    """The topics that a pattern matched."""

    topics: frozenset[str]
    version: int
    """The version of the metadata that was searched."""
    timestamp_ms: int


class ConsumerGroupSoftState(Struct, frozen=True, gc=False):
    """A change to a consumer group that no record holds. A field of None stays unchanged."""

    group_id: str
    metadata_checked: bool | None = None
    topics_created_ms: int | None = None
    resolving: bool | None = None
    rejoining: frozenset[str] | None = None

    def apply_to(self, groups: dict[str, Group]) -> None:
        group = groups.get(self.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        if self.metadata_checked is not None:
            group.metadata_checked = self.metadata_checked
        if self.topics_created_ms is not None:
            group.topics_created_ms = self.topics_created_ms
        if self.resolving is not None:
            group.resolving = self.resolving
        if self.rejoining is not None:
            group.rejoining = self.rejoining


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group."""

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    """The group epoch that the target assignment is for."""
    assignment_timestamp_ms: int = 0
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    resolved: dict[str, ResolvedRegex] = field(default_factory=dict)
    has_partition_metadata: bool = False
    """Whether the log has a record of Kafka before 4.1, which the next metadata check deletes."""

    # Derived from the fields above.
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by group.instance.id."""
    owners: dict[UUID, dict[int, str]] = field(default_factory=dict)
    """The member that owns a partition or has not given it up yet."""
    assignors: dict[str, int] = field(default_factory=dict)
    """The number of members that request each assignor."""
    names: dict[str, int] = field(default_factory=dict)
    """The number of members that name each topic."""
    regexes: dict[str, int] = field(default_factory=dict)
    """The number of members that subscribe with each pattern."""
    matched: dict[str, int] = field(default_factory=dict)
    """The number of resolved patterns that match each topic."""
    classic_protocols: dict[str, int] = field(default_factory=dict)
    """The number of members that joined with JoinGroup and support each protocol."""
    classic_members: int = 0

    # Held in no record: see `ConsumerGroupSoftState`.
    metadata_checked: bool = False
    """False if topics may differ from those of the metadata hash."""
    topics_created_ms: int = UNKNOWN_TIME
    """When the last topic was created: patterns that were resolved before are resolved again."""
    resolving: bool = False
    rejoining: frozenset[str] = frozenset()
    """Members of the classic protocol that are expected to join again."""

    # --- state

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names or topic in self.matched

    def member(self, member_id: str) -> ConsumerGroupMember:
        """Returns the member; raises UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{member_id} is no member of group {self.group_id}",
                remedy="join it again",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """Returns the member's target; a static member under a new id has that of its old id."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return {} if member_id is None else self.target.get(member_id, {})

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        return self.owners.get(topic_id, {}).get(partition)

    def preferred_assignor(
        self,
        available: Iterable[str],
        old: ConsumerGroupMember | None = None,
        new: ConsumerGroupMember | None = None,
    ) -> str | None:
        """Returns the assignor that most members request; the first of `available` in a tie."""
        counts = dict(self.assignors)
        _count(counts, _assignor(old), -1)
        _count(counts, _assignor(new), 1)
        requested = [name for name in available if name in counts]
        return max(requested, key=counts.__getitem__, default=None)

    # --- subscriptions

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Returns the names of the topics it subscribes to, by name or by pattern."""
        resolved = self.resolved.get(member.subscribed_topic_regex or "")
        names = member.subscribed_topic_names
        return names if resolved is None else names | resolved.topics

    def subscribed_topics(
        self,
        old: ConsumerGroupMember | None = None,
        new: ConsumerGroupMember | None = None,
    ) -> set[str]:
        """Returns the topics that the group reads if `new` replaces `old`."""
        names = self.names
        if _names(old) != _names(new):
            names = dict(names)
            _count(names, _names(old), -1)
            _count(names, _names(new), 1)
        unused = [] if _regex(old) == _regex(new) else self.last_regexes(_regex(old))
        matched = self.matched_without(unused) if unused else self.matched
        return names.keys() | matched.keys()

    def last_regexes(self, regexes: Iterable[str]) -> list[str]:
        """Returns the patterns that no member has once members with these patterns are removed."""
        counts: dict[str, int] = {}
        _count(counts, regexes, 1)
        return [regex for regex, count in counts.items() if self.regexes.get(regex) == count]

    def matched_without(self, regexes: Iterable[str]) -> dict[str, int]:
        """Returns how many patterns match each topic, without these patterns."""
        matched = dict(self.matched)
        for regex in regexes:
            resolved = self.resolved.get(regex)
            _count(matched, () if resolved is None else resolved.topics, -1)
        return matched

    # --- changes, for `replay`

    def put(self, member: ConsumerGroupMember) -> None:
        """Adds a member, or replaces it by its new value."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._recount(old, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def drop(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._recount(old, None)
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Stores the topics that a pattern matched; None removes the pattern."""
        old = self.resolved.pop(regex, None)
        if old is not None:
            _count(self.matched, old.topics, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            _count(self.matched, resolved.topics, 1)

    def _recount(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        if old is not None:
            for topic_id, partition in _owned(old):
                partitions = self.owners.get(topic_id, {})
                if partitions.get(partition) == old.member_id:
                    del partitions[partition]
                    if not partitions:
                        del self.owners[topic_id]
        if new is not None:
            for topic_id, partition in _owned(new):
                self.owners.setdefault(topic_id, {})[partition] = new.member_id
        for counts, of in (
            (self.names, _names),
            (self.assignors, _assignor),
            (self.regexes, _regex),
            (self.classic_protocols, _classic_protocols),
        ):
            before, after = of(old), of(new)
            if before != after:
                _count(counts, before, -1)
                _count(counts, after, 1)
        self.classic_members += _is_classic(new) - _is_classic(old)


def _owned(member: ConsumerGroupMember) -> Iterator[tuple[UUID, int]]:
    for epochs in (member.assigned, member.pending_revocation):
        for topic_id, partitions in epochs.items():
            for partition in partitions:
                yield topic_id, partition


def _names(member: ConsumerGroupMember | None) -> frozenset[str]:
    return frozenset() if member is None else member.subscribed_topic_names


def _assignor(member: ConsumerGroupMember | None) -> tuple[str, ...]:
    if member is None or member.server_assignor is None:
        return ()
    return (member.server_assignor,)


def _regex(member: ConsumerGroupMember | None) -> tuple[str, ...]:
    return (member.subscribed_topic_regex,) if member and member.subscribed_topic_regex else ()


def _classic_protocols(member: ConsumerGroupMember | None) -> tuple[str, ...]:
    if member is None or member.classic is None:
        return ()
    return tuple(protocol.name for protocol in member.classic.supported_protocols)


def _is_classic(member: ConsumerGroupMember | None) -> int:
    return 0 if member is None else int(member.uses_classic_protocol)


def _count(counts: dict[str, int], keys: Iterable[str], step: int) -> None:
    for key in keys:
        count = counts.get(key, 0) + step
        if count > 0:
            counts[key] = count
        else:
            counts.pop(key, None)
