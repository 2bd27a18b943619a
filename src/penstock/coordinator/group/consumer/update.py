"""One decision about a consumer group: it reads the group and collects what follows."""

from collections.abc import Collection, Iterable

from penstock.coordinator.group.assignors import ASSIGNORS
from penstock.coordinator.group.classic.update import ClassicGroupUpdate
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer.metadata_hash import metadata_hash
from penstock.coordinator.group.consumer.migration import downgraded, may_downgrade
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
from penstock.coordinator.group.records import Record
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import CancelTimer, Response, SetTimer


class ConsumerGroupUpdate:
    """`group` is not changed: what is decided is in the records."""

    def __init__(self, group: ConsumerGroup, now: int, config: GroupConfig, topics: Topics) -> None:
        self.group = group
        self.now = now
        self.config = config
        self.topics = topics
        self.records: list[Record] = []
        self.timers: list[SetTimer[Timer] | CancelTimer[Timer]] = []
        self.news: list[ConsumerGroupSoftState] = []
        self.regexes: list[ResolveRegexes] = []
        self.responses: list[Response] = []
        self.classic: ClassicGroupUpdate | None = None
        """The group's next turn, where it has become a classic group."""

    def result(self, event: Event | None) -> Result:
        if self.classic is not None:
            self.responses.extend(self.classic.responses)
            self.timers.extend(self.classic.timers)
        return Result(
            event,
            self.records,
            () if self.classic is None else (self.classic.group,),
            self.responses,
            self.timers,
            news=self.news,
            regexes=self.regexes,
        )

    # --- the three steps of a heartbeat

    def update_metadata(
        self, old: ConsumerGroupMember, new: ConsumerGroupMember, *, bump: bool
    ) -> int:
        """The group epoch: the next one where `bump` is set or the topics have changed."""
        group = self.group
        found = metadata_hash(group.subscribed_topics(old, new), self.topics)
        epoch = group.group_epoch
        if bump or found != group.metadata_hash:
            epoch += 1
            self.records.append(epoch_record(group.group_id, epoch, found))
        self.news.append(ConsumerGroupSoftState(group.group_id, metadata_checked=True))
        if group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def update_target(
        self, epoch: int, old: ConsumerGroupMember, new: ConsumerGroupMember
    ) -> tuple[int, Partitions]:
        """The epoch of the target assignment, and what `new` is to own in it."""
        group = self.group
        if group.assignment_epoch >= epoch or not self._may_assign():
            return group.assignment_epoch, group.target_of(new)
        members = {**group.members, new.member_id: new}
        target = dict(group.target)
        previous = group.static_member(new.instance_id)
        if previous is not None and previous.member_id != new.member_id:
            del members[previous.member_id]
            target[new.member_id] = group.target.get(previous.member_id, {})
        known = self.config.group_consumer_assignors
        name = group.preferred_assignor(known, old, new) or known[0]
        found = compute_target(group, members, target, ASSIGNORS[name], self.topics)
        for member_id in members:
            if group.target.get(member_id) != found[member_id]:
                self.records.append(target_record(group.group_id, member_id, found[member_id]))
        self.records.append(target_epoch_record(group.group_id, epoch, self.now))
        return epoch, found[new.member_id]

    def _may_assign(self) -> bool:
        computed = self.group.assignment_timestamp_ms
        interval = self.config.consumer_of(self.group.group_id).assignment_interval_ms
        return computed == 0 or interval == 0 or self.now >= computed + interval

    def reconcile(
        self,
        member: ConsumerGroupMember,
        epoch: int,
        target: Partitions,
        owned: Owned,
        *,
        subscription_changed: bool,
    ) -> ConsumerGroupMember:
        """The member after its next step, if there is one to make."""
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        steps = Reconciliation(self.group, member, epoch, target, owned, self.topics)
        updated = steps.step(subscription_changed=subscription_changed)
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

    # --- the end of members

    def fence(self, members: Collection[ConsumerGroupMember]) -> None:
        """They are gone, and the group goes to its next epoch."""
        if not members:
            return
        if may_downgrade(self.group, self.config, gone=members):
            self.convert_to_classic(gone=members, rebalance=True)
            return
        group = self.group
        for member in members:
            self.records.extend(member_tombstones(group.group_id, member.member_id))
        regexes = group.last_regexes(
            m.subscribed_topic_regex for m in members if m.subscribed_topic_regex
        )
        self.records.extend(regex_tombstone(group.group_id, regex) for regex in regexes)
        found = metadata_hash(_topics_without(group, members, regexes), self.topics)
        self.records.append(epoch_record(group.group_id, group.group_epoch + 1, found))
        for member in members:
            self.cancel_timers(member)

    def convert_to_classic(
        self,
        *,
        gone: Collection[ConsumerGroupMember] = (),
        joining: ConsumerGroupMember | None = None,
        rebalance: bool,
    ) -> None:
        """Those who stay, all of the classic protocol, go on as a classic group."""
        group = self.group
        replaced = None if joining is None else group.static_member(joining.instance_id)
        renamed = {replaced.member_id: joining.member_id} if replaced and joining else None
        self.records.extend(group_tombstones(group, renamed))
        made = downgraded(group, self.now, self.topics, gone=gone, joining=joining)
        for member in group.members.values():
            self.cancel_timers(member)
        turn = ClassicGroupUpdate(made, self.now, self.config)
        turn.store()
        self.records.extend(turn.records)
        turn.records.clear()
        for classic in made.members.values():
            turn.expect_heartbeat(classic)
        if rebalance:
            turn.prepare_rebalance()
        self.classic = turn

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
    group: ConsumerGroup, gone: Iterable[ConsumerGroupMember], regexes: list[str]
) -> set[str]:
    """What the group reads without these members and patterns."""
    names = dict(group.names)
    for member in gone:
        for name in member.subscribed_topic_names:
            names[name] -= 1
    matched = group.matched_without(regexes) if regexes else group.matched
    return {name for name, count in names.items() if count} | matched.keys()
