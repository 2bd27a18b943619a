"""One member's next step towards its target assignment.

A partition is assigned to a member only when no other member owns it, and a member reaches the next
epoch only when it has given up the partitions that it does not own there:

    Stable, behind ──► must give up some ──► UnrevokedPartitions ──(reports that it did)──┐
          │                                                                               │
          └──► nothing to give up ──► Stable, or UnreleasedPartitions ◄───────────────────┘
                                      if others still own partitions of its target
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from penstock.coordinator.group.consumer.model import (
    ConsumerGroup,
    ConsumerGroupMember,
    EpochsByPartition,
    MemberState,
    Partitions,
)
from penstock.coordinator.group.topics import Topics
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequestTopicPartitions as OwnedPartitions,
)

Owned = Sequence[OwnedPartitions] | None
"""The partitions that the member reports as owned; None if it reports none."""


class Reconciliation:
    """The step of `member` towards `target`, which belongs to `epoch`."""

    def __init__(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        epoch: int,
        target: Partitions,
        owned: Owned,
        topics: Topics,
    ) -> None:
        self.group = group
        self.member = member
        self.epoch = epoch
        self.target = target
        self.owned = owned
        self.topics = topics

    def step(self, *, subscription_changed: bool) -> ConsumerGroupMember:
        """Returns the member after the step; the same object if nothing changes."""
        member = self.member
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch != self.epoch:
                    return self._next_assignment(member.member_epoch)
                return self._without_unsubscribed() if subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if not self._owns_any(member.pending_revocation):
                    return self._next_assignment(member.member_epoch)
                return self._without_unsubscribed() if subscription_changed else member
            case MemberState.UNRELEASED_PARTITIONS:
                return self._next_assignment(member.member_epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        f"the partitions of member {member.member_id} are unknown",
                        remedy="give up all partitions and join again",
                    )
                return self._next_assignment(self.epoch)

    def _next_assignment(self, epoch: int) -> ConsumerGroupMember:
        member = self.member
        subscribed = self._subscribed_topic_ids()
        retained: dict[UUID, dict[int, int]] = {}
        revoked: dict[UUID, dict[int, int]] = {}
        added: dict[UUID, set[int]] = {}
        unreleased = False
        for topic_id in self.target.keys() | member.assigned.keys():
            target = self.target.get(topic_id, frozenset()) if topic_id in subscribed else ()
            current = member.assigned.get(topic_id, {})
            keep = {p: at for p, at in current.items() if p in target}
            revoke = {p: at for p, at in current.items() if p not in target}
            add = {p for p in target if p not in keep}
            free = {p for p in add if self._is_free(topic_id, p)}
            unreleased |= len(free) < len(add)
            if keep:
                retained[topic_id] = keep
            if revoke:
                revoked[topic_id] = revoke
            if free:
                added[topic_id] = free
        if revoked and self._owns_any(revoked):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                member_epoch=epoch,
                previous_member_epoch=member.member_epoch,
                assigned=retained,
                pending_revocation=revoked,
            )
        for topic_id, free in added.items():
            retained.setdefault(topic_id, {}).update(dict.fromkeys(free, self.epoch))
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
            member_epoch=self.epoch,
            previous_member_epoch=member.member_epoch,
            assigned=retained,
            pending_revocation={},
        )

    def _is_free(self, topic_id: UUID, partition: int) -> bool:
        if self.group.owner_of(topic_id, partition) is None:
            return True
        return partition in self.member.pending_revocation.get(topic_id, {})

    def _without_unsubscribed(self) -> ConsumerGroupMember:
        """Revokes the topics that the member no longer subscribes to, ahead of the next target."""
        member = self.member
        subscribed = self._subscribed_topic_ids()
        retained = {t: ps for t, ps in member.assigned.items() if t in subscribed}
        reads_nothing = not self.group.topics_of(member) and not member.pending_revocation
        if len(retained) == len(member.assigned) and not reads_nothing:
            return member
        pending = dict(member.pending_revocation)
        for topic_id, partitions in member.assigned.items():
            if topic_id not in subscribed:
                pending[topic_id] = {**pending.get(topic_id, {}), **partitions}
        changed = replace(member, previous_member_epoch=member.member_epoch, assigned=retained)
        if not self._owns_any(pending):
            return changed
        return replace(changed, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending)

    def _owns_any(self, partitions: EpochsByPartition) -> bool:
        """Returns whether the member still owns one of these, as it must be assumed if it reports
        none."""
        if self.owned is None:
            return True
        return any(
            partition in partitions.get(topic.topic_id, {})
            for topic in self.owned
            for partition in topic.partitions
        )

    def _subscribed_topic_ids(self) -> set[UUID | None]:
        return {self.topics.topic_id(name) for name in self.group.topics_of(self.member)}


def is_subset(owned: Owned, assigned: EpochsByPartition) -> bool:
    """Returns whether the member reports what it owns, and owns only what was assigned to it."""
    return owned is not None and all(
        topic.topic_id in assigned
        and all(partition in assigned[topic.topic_id] for partition in topic.partitions)
        for topic in owned
    )
