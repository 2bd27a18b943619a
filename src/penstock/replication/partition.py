"""A partition as seen by its local replica: leader, epochs, ISR, followers and watermarks (R2, R4).

This class holds state and makes decisions; `broker/replica` owns the log. Whenever the log end
offset, a follower or the ISR changes, the caller computes the high watermark here and passes it to
the log. `isr` decides about changes of the ISR.

The ISR is *committed* as long as `pending` is None: the controller and this broker agree on it.
Otherwise the leader has proposed another one. Until the outcome is known, the high watermark waits
for the *maximal* ISR: a replica that may have joined is waited for already, and one that may have
left is waited for still (KIP-497). So it holds whichever of the two the controller has stored.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicId, TopicPartition
from penstock.replication.follower_state import UNKNOWN_OFFSET, FollowerState
from penstock.replication.leader_confirmation import LeaderConfirmation

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class IsrRules:
    """The settings and the live brokers, by which a leader decides which followers are in sync."""

    max_lag_ms: int
    """`replica.lag.time.max.ms`."""
    live_epoch: Callable[[int], int | None]
    """Returns the epoch of a broker that is up, 0 or less if it is unknown; None if it is down."""

    def is_alive(self, broker_id: int) -> bool:
        return self.live_epoch(broker_id) is not None

    def is_eligible(self, follower: FollowerState) -> bool:
        """Whether a follower may join the ISR: its broker is up, and is the one that fetched.

        A broker that was restarted in between may have lost what it had fetched (KIP-903).
        """
        epoch = self.live_epoch(follower.broker_id)
        return epoch is not None and (epoch <= 0 or follower.broker_epoch in (-1, epoch))


NO_FOLLOWERS: Final = IsrRules(30_000, lambda broker_id: None)
"""The rules of a broker that is alone in its cluster."""


class IsrChange(Enum):
    EXPAND = auto()
    SHRINK = auto()


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int
    """-1 if the leader does not know it."""


@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """An ISR that the leader proposes to the controller; compared by identity."""

    key: TopicPartition
    topic_id: TopicId
    change: IsrChange
    leader_epoch: int
    partition_epoch: int
    members: tuple[IsrMember, ...]

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(member.broker_id for member in self.members)


class Partition:
    """The replication state of a partition with a local replica."""

    __slots__ = (
        "_confirmation",
        "adding",
        "epoch_start_offset",
        "followers",
        "is_leader",
        "isr",
        "key",
        "leader",
        "leader_epoch",
        "local_id",
        "maximal_isr",
        "partition_epoch",
        "pending",
        "removing",
        "replicas",
        "topic_id",
    )

    def __init__(self, key: TopicPartition, topic_id: TopicId, local_id: int) -> None:
        self.key = key
        self.topic_id = topic_id
        self.local_id = local_id
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The ISR that the controller has committed."""
        self.is_leader = False
        self.followers: dict[int, FollowerState] = {}
        """The other replicas while this broker leads; empty while it follows."""
        self.epoch_start_offset = UNKNOWN_OFFSET
        """While this broker leads: where its log ended when the leader epoch began."""
        self.pending: IsrProposal | None = None
        """The proposal whose outcome is not known."""
        self.maximal_isr: frozenset[int] = frozenset()
        """Every replica that is in the committed ISR or in a pending expansion of it."""
        self._confirmation: LeaderConfirmation | None = None

    # --- states from the controller

    def update(
        self,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        adding: tuple[int, ...] = (),
        removing: tuple[int, ...] = (),
        log_end_offset: int = 0,
        now_ms: int = 0,
    ) -> bool:
        """Applies a state from the controller; returns False if it is not newer than this one.

        It ends a pending proposal: its outcome is part of the state, or the controller refuses it.
        `log_end_offset` is that of the local log.
        """
        if partition_epoch <= self.partition_epoch or leader_epoch < self.leader_epoch:
            return False
        was_leader = self.is_leader
        is_new_epoch = leader_epoch != self.leader_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.adding = adding
        self.removing = removing
        self.is_leader = leader == self.local_id
        self._commit_isr(isr)
        if not self.is_leader:
            self.followers = {}
            self.epoch_start_offset = UNKNOWN_OFFSET
            return True
        self.followers = {
            broker_id: self.followers.get(broker_id) or FollowerState(broker_id)
            for broker_id in replicas
            if broker_id != self.local_id
        }
        if is_new_epoch or not was_leader:
            self.epoch_start_offset = log_end_offset
            for follower in self.followers.values():
                follower.reset(
                    log_end_offset,
                    now_ms,
                    is_new_leader=not was_leader,
                    is_in_sync=follower.broker_id in isr,
                )
        return True

    def resign(self) -> None:
        """Stops leading: the replica is removed, and clients must look for another leader."""
        self.is_leader = False
        self.followers = {}
        self.pending = None

    def check_leader(self, current_leader_epoch: int = -1) -> ErrorCode:
        """Returns NONE if this replica may serve a client that knows this leader epoch.

        -1 means that the client does not know the epoch.
        """
        code = self.check_epoch(current_leader_epoch)
        if code is ErrorCode.NONE and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Returns NONE if a client that knows this leader epoch may read from this replica."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def confirm_leader(self, offset: int, now_ms: int) -> bool:
        """Returns whether this leader may report that its log ends before an offset.

        False means that it may have been replaced without knowing it yet. Then the followers must
        fetch, for which the caller wakes them up if `is_wake_due`.
        """
        fetches = {
            broker_id: follower.fetches
            for broker_id, follower in self.followers.items()
            if broker_id in self.maximal_isr
        }
        if not fetches:
            return True
        if self._confirmation is None:
            self._confirmation = LeaderConfirmation()
        return self._confirmation.confirm(offset, self.leader_epoch, fetches, now_ms)

    def is_wake_due(self, now_ms: int) -> bool:
        """Returns whether to wake up the followers for `confirm_leader`, at most every 20 ms."""
        return self._confirmation is not None and self._confirmation.is_wake_due(now_ms)

    # --- ISR

    def propose(self, proposal: IsrProposal) -> None:
        """Waits for the outcome of a proposal; there must be no other one."""
        self.pending = proposal
        self.maximal_isr = frozenset(self.isr).union(proposal.isr)

    def commit_proposal(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Applies the ISR that the controller has committed."""
        self.partition_epoch = partition_epoch
        self._commit_isr(isr)

    def withdraw_proposal(self) -> None:
        """Returns to the committed ISR, when the controller surely did not apply the proposal."""
        self._commit_isr(self.isr)

    def _commit_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.pending = None
        self.maximal_isr = frozenset(isr)

    # --- watermarks

    def needed_in_sync(self, min_insync_replicas: int) -> int:
        """Returns how many replicas `min.insync.replicas` requires: at most all."""
        return min(min_insync_replicas, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        """Whether this leader has fewer replicas in sync than it should have.

        During a reassignment, the added replicas do not count.
        """
        expected = len(self.replicas) - len(self.adding)
        return self.is_leader and len(self.isr) < expected

    def high_watermark(self, log_end_offset: int, now_ms: int, rules: IsrRules) -> int:
        """Returns the offset below which every replica that counts has all records (R2).

        These are the leader, the maximal ISR, and the followers that have caught up recently and
        may join the ISR: they would never reach the high watermark if it did not wait for them. The
        result may be lower than the current high watermark, which never falls.
        """
        offset = log_end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < offset and (
                broker_id in self.maximal_isr
                or (
                    follower.is_caught_up(log_end_offset, now_ms, rules.max_lag_ms)
                    and rules.is_eligible(follower)
                )
            ):
                offset = follower.log_end_offset
        return offset

    def low_watermark(self, log_start_offset: int, rules: IsrRules) -> int:
        """Returns the smallest log start offset of the leader and its followers that are up."""
        for broker_id, follower in self.followers.items():
            if follower.log_start_offset < log_start_offset and rules.is_alive(broker_id):
                log_start_offset = follower.log_start_offset
        return log_start_offset
