"""One decision about a consumer group: it reads the group and collects records and effects."""

from collections.abc import Collection, Iterable

from penstock.coordinator.group.assignors import ASSIGNORS
from penstock.coordinator.group.classic.update import ClassicGroupUpdate
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer.metadata_hash import metadata_hash
from penstock.coordinator.group.consumer.migration import can_downgrade, downgrade
from penstock.coordinator.group.consumer.model import (
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupSoftState,
    MemberState,
    Partitions,
)
from penstock.coordinator.group.consumer.reconcile import Owned, Reconciliation
from penstock.coordinator.group.consumer.records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from penstock.coordinator.group.consumer.target import compute_target
from penstock.coordinator.group.events import (
    Event,
    RejoinTimer,
    ResolveRegexes,
    Result,
    ResyncTimer,
    RevocationTimer,
    SessionTimer,
    Timer,
)
from penstock.coordinator.group.group import StateUpdate
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import CancelTimer, Response, SetTimer


class ConsumerGroupUpdate:
    """A decision about `group`, which is not changed: the records hold the decision."""

    def __init__(self, group: ConsumerGroup, now: int, config: GroupConfig, topics: Topics) -> None:
        self.group = group
        self.now = now
        self.config = config
        self.topics = topics
        self.records: list[Record] = []
        self.timers: list[SetTimer[Timer] | CancelTimer[Timer]] = []
        self.state_updates: list[StateUpdate] = []
        self.regexes: list[ResolveRegexes] = []
        self.responses: list[Response] = []
        self.classic: ClassicGroupUpdate | None = None
        """Set if the group has become a classic group."""

    def result(self, event: Event | None) -> Result:
        if self.classic is not None:
            self.responses.extend(self.classic.responses)
            self.timers.extend(self.classic.timers)
            self.state_updates.insert(0, self.classic.group)
        return Result(
            event,
            self.records,
            self.state_updates,
            self.responses,
            self.timers,
            regexes=self.regexes,
        )

    # --- the three steps of a heartbeat

    def update_metadata(
        self, old: ConsumerGroupMember, new: ConsumerGroupMember, *, bump: bool
    ) -> int:
        """Returns the group epoch, which is the next one if `bump` or the topics have changed."""
        group = self.group
        new_hash = metadata_hash(group.subscribed_topics(old, new), self.topics)
        epoch = group.group_epoch
        if bump or new_hash != group.metadata_hash:
            epoch += 1
            self.records.append(epoch_record(group.group_id, epoch, new_hash))
        self.state_updates.append(ConsumerGroupSoftState(group.group_id, metadata_checked=True))
        if group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def update_target(
        self, epoch: int, old: ConsumerGroupMember, new: ConsumerGroupMember
    ) -> tuple[int, Partitions]:
        """Returns the epoch of the target assignment, and the target of `new`."""
        group = self.group
        if group.assignment_epoch >= epoch or not self._can_assign():
            return group.assignment_epoch, group.target_of(new)
        members = {**group.members, new.member_id: new}
        target = dict(group.target)
        previous = group.static_member(new.instance_id)
        if previous is not None and previous.member_id != new.member_id:
            del members[previous.member_id]
            target[new.member_id] = group.target.get(previous.member_id, {})
        available = self.config.group_consumer_assignors
        name = group.preferred_assignor(available, old, new) or available[0]
        assignment = compute_target(group, members, target, ASSIGNORS[name], self.topics)
        for member_id in members:
            if group.target.get(member_id) != assignment[member_id]:
                self.records.append(target_record(group.group_id, member_id, assignment[member_id]))
        self.records.append(target_epoch_record(group.group_id, epoch, self.now))
        return epoch, assignment[new.member_id]

    def _can_assign(self) -> bool:
        """Whether the last assignment is old enough for the next one.

        One in the future is: the clock was set back, or that of the last coordinator was ahead.
        """
        computed = self.group.assignment_timestamp_ms
        interval = self.config.consumer_of(self.group.group_id).assignment_interval_ms
        return computed == 0 or not 0 <= self.now - computed < interval

    def reconcile(
        self,
        member: ConsumerGroupMember,
        epoch: int,
        target: Partitions,
        owned: Owned,
        *,
        subscription_changed: bool,
    ) -> ConsumerGroupMember:
        """Returns the member after its next step towards the target, if there is one."""
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        reconciliation = Reconciliation(self.group, member, epoch, target, owned, self.topics)
        updated = reconciliation.step(subscription_changed=subscription_changed)
        if updated == member:
            return member
        group_id = self.group.group_id
        self.records.append(current_record(group_id, updated))
        if not updated.uses_classic_protocol:
            timer = RevocationTimer(group_id, updated.member_id)
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                self.set_timer(timer, updated.rebalance_timeout_ms)
            else:
                self.timers.append(CancelTimer(timer))
        return updated

    # --- removal of members

    def fence(self, members: Collection[ConsumerGroupMember]) -> None:
        """Removes members, which takes the group to its next epoch."""
        if not members:
            return
        if can_downgrade(self.group, self.config, removed=members):
            self.convert_to_classic(removed=members, rebalance=True)
            return
        group = self.group
        for member in members:
            self.records.extend(member_tombstones(group.group_id, member.member_id))
        regexes = group.last_regexes(
            m.subscribed_topic_regex for m in members if m.subscribed_topic_regex
        )
        self.records.extend(regex_tombstone(group.group_id, regex) for regex in regexes)
        new_hash = metadata_hash(_topics_without(group, members, regexes), self.topics)
        self.records.append(epoch_record(group.group_id, group.group_epoch + 1, new_hash))
        for member in members:
            self.cancel_timers(member)

    def convert_to_classic(
        self,
        *,
        removed: Collection[ConsumerGroupMember] = (),
        joining: ConsumerGroupMember | None = None,
        rebalance: bool,
    ) -> None:
        """Converts the group, whose remaining members all use the classic protocol."""
        group = self.group
        replaced = None if joining is None else group.static_member(joining.instance_id)
        renamed = {replaced.member_id: joining.member_id} if replaced and joining else None
        self.records.extend(group_tombstones(group, renamed))
        classic_group = downgrade(group, self.now, self.topics, removed=removed, joining=joining)
        for member in group.members.values():
            self.cancel_timers(member)
        update = ClassicGroupUpdate(classic_group, self.now, self.config)
        update.store()
        self.records.extend(update.records)
        update.records.clear()
        for classic in classic_group.members.values():
            update.expect_heartbeat(classic)
        if rebalance:
            update.prepare_rebalance()
        self.classic = update

    # --- timers

    def expect_heartbeat(self, member: ConsumerGroupMember) -> None:
        timeout = self.config.consumer_of(self.group.group_id).session_timeout_ms
        self.set_timer(SessionTimer(self.group.group_id, member.member_id), timeout)

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.timers.append(SetTimer(timer, self.now + delay_ms))

    def cancel_timers(self, member: ConsumerGroupMember) -> None:
        group_id, member_id = self.group.group_id, member.member_id
        self.timers.append(CancelTimer(SessionTimer(group_id, member_id)))
        self.timers.append(CancelTimer(RevocationTimer(group_id, member_id)))
        if member.uses_classic_protocol:
            self.timers.append(CancelTimer(RejoinTimer(group_id, member_id)))
            self.timers.append(CancelTimer(ResyncTimer(group_id, member_id)))


def _topics_without(
    group: ConsumerGroup, removed: Iterable[ConsumerGroupMember], regexes: list[str]
) -> set[str]:
    """Returns the topics that the group reads without these members and patterns."""
    names = dict(group.names)
    for member in removed:
        for name in member.subscribed_topic_names:
            names[name] -= 1
    matched = group.matched_without(regexes) if regexes else group.matched
    return {name for name, count in names.items() if count} | matched.keys()
