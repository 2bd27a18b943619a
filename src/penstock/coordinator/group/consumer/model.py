"""A consumer group (KIP-848) as a value: epochs, members, subscriptions, targets and owners.

Members are frozen. A group is changed in place, by `replay` and `take` alone: decisions read it
and make records, so that a heartbeat that changes nothing copies nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from uuid import UUID

from msgspec import Struct

from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.stored.consumer_group import ClassicMemberMetadata

LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2

UNKNOWN_TIME = (1 << 63) - 1
"""Later than all that is known."""

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id: what a member is to own."""

EpochsByPartition = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which the member got it."""


class ConsumerGroupState(Enum):
    """Kafka's names, as tools show them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment, as it is stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must let go of partitions before it can get to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in the epoch, but some of its partitions are still another member's."""
    UNKNOWN = 127
    """Written by a coordinator that knows more states: the member has to join again."""

    @classmethod
    def of(cls, value: int) -> "MemberState":
        return cls(value) if 0 <= value <= cls.UNRELEASED_PARTITIONS else cls.UNKNOWN


class ConsumerGroupMember(Struct, frozen=True):
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
    """What it was told to let go of, and has not said that it did."""
    classic: ClassicMemberMetadata | None = None
    """What it said when it joined with JoinGroup; None for a member of the new protocol."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """Since which epoch the partition is the member's; None where it is not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        if epoch is None:
            epoch = self.pending_revocation.get(topic_id, {}).get(partition)
        return epoch


class ResolvedRegex(Struct, frozen=True):
    """The topics that a pattern matched."""

    topics: frozenset[str]
    version: int
    """Of the metadata that was searched."""
    timestamp_ms: int


class ConsumerGroupSoftState(Struct, frozen=True, gc=False):
    """News of a group that no record keeps. What is None stays as it is."""

    group_id: str
    metadata_checked: bool | None = None
    topics_created_ms: int | None = None
    resolving: bool | None = None
    rejoining: frozenset[str] | None = None


@dataclass(slots=True)
class ConsumerGroup:
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
    """A record of Kafka before 4.1 is in the log, which the next check of the metadata deletes."""

    # Follows from the above.
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by group.instance.id."""
    owners: dict[UUID, dict[int, str]] = field(default_factory=dict)
    """Who has a partition, or has not let go of it yet."""
    assignors: dict[str, int] = field(default_factory=dict)
    """How many members ask for each assignor."""
    names: dict[str, int] = field(default_factory=dict)
    """How many members name each topic."""
    regexes: dict[str, int] = field(default_factory=dict)
    """How many members subscribe by each pattern."""
    matched: dict[str, int] = field(default_factory=dict)
    """How many resolved patterns match each topic."""
    classic_protocols: dict[str, int] = field(default_factory=dict)
    """How many members that joined with JoinGroup can do each protocol."""
    classic_members: int = 0

    # What no record keeps: see ConsumerGroupSoftState.
    metadata_checked: bool = False
    """False: topics may differ from those the metadata hash was made of."""
    topics_created_ms: int = UNKNOWN_TIME
    """When the last new topic came: patterns that were resolved before are resolved again."""
    resolving: bool = False
    rejoining: frozenset[str] = frozenset()
    """Members of the classic protocol whose time to join again is running."""

    # --- what it is

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
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{member_id} is no member of group {self.group_id}: join it again",
            )
        return found

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """What it is to own; an instance under a new id takes over what it was to own before."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return {} if member_id is None else self.target.get(member_id, {})

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        return self.owners.get(topic_id, {}).get(partition)

    def preferred_assignor(
        self,
        known: Iterable[str],
        old: ConsumerGroupMember | None = None,
        new: ConsumerGroupMember | None = None,
    ) -> str | None:
        """What most members ask for, the first of `known` where two are even."""
        counts = dict(self.assignors)
        _count(counts, _assignor(old), -1)
        _count(counts, _assignor(new), 1)
        asked = [name for name in known if name in counts]
        return max(asked, key=counts.__getitem__, default=None)

    # --- subscriptions

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The names of the topics it subscribes to, those that its pattern matched included."""
        resolved = self.resolved.get(member.subscribed_topic_regex or "")
        names = member.subscribed_topic_names
        return names if resolved is None else names | resolved.topics

    def subscribed_topics(
        self,
        old: ConsumerGroupMember | None = None,
        new: ConsumerGroupMember | None = None,
    ) -> set[str]:
        """What the group reads; or would, if `new` took the place of `old`."""
        names = self.names
        if _names(old) != _names(new):
            names = dict(names)
            _count(names, _names(old), -1)
            _count(names, _names(new), 1)
        gone = [] if _regex(old) == _regex(new) else self.last_regexes(_regex(old))
        matched = self.matched_without(gone) if gone else self.matched
        return names.keys() | matched.keys()

    def last_regexes(self, regexes: Iterable[str]) -> list[str]:
        """Those that nobody will subscribe by when members with these patterns are gone."""
        counts: dict[str, int] = {}
        _count(counts, regexes, 1)
        return [regex for regex, count in counts.items() if self.regexes.get(regex) == count]

    def matched_without(self, regexes: Iterable[str]) -> dict[str, int]:
        """How many patterns match each topic, these left out."""
        matched = dict(self.matched)
        for regex in regexes:
            resolved = self.resolved.get(regex)
            _count(matched, () if resolved is None else resolved.topics, -1)
        return matched

    # --- changes, for `replay`

    def put(self, member: ConsumerGroupMember) -> None:
        """Add a member, or take its new value for the one it had."""
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
        """Take over what a pattern matched; None: nobody asks any more."""
        old = self.resolved.pop(regex, None)
        if old is not None:
            _count(self.matched, old.topics, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            _count(self.matched, resolved.topics, 1)

    def take(self, news: ConsumerGroupSoftState) -> None:
        if news.metadata_checked is not None:
            self.metadata_checked = news.metadata_checked
        if news.topics_created_ms is not None:
            self.topics_created_ms = news.topics_created_ms
        if news.resolving is not None:
            self.resolving = news.resolving
        if news.rejoining is not None:
            self.rejoining = news.rejoining

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
