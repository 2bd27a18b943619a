"""Decisions of a leader about its ISR: when to propose another one, and what the outcome means.

A follower leaves when it has not been caught up for `replica.lag.time.max.ms`, and joins when it
has all committed records and those of earlier leader epochs (R2). Only the controller changes the
ISR: the leader proposes, one proposal at a time (AlterPartition).
"""

from enum import Enum, auto
from typing import NamedTuple

from penstock.core.errors import ErrorCode
from penstock.replication.partition import (
    IsrChange,
    IsrMember,
    IsrProposal,
    IsrRules,
    Partition,
)


def expand_isr(
    partition: Partition,
    broker_id: int,
    high_watermark: int,
    rules: IsrRules,
    local_epoch: int = -1,
) -> IsrProposal | None:
    """Proposes to add a follower that is in sync; returns None if it is not, or must wait.

    `local_epoch` is the broker epoch of this broker.
    """
    follower = partition.followers.get(broker_id)
    if (
        partition.pending is not None
        or follower is None
        or broker_id in partition.isr
        or follower.log_end_offset < high_watermark
        or follower.log_end_offset < partition.epoch_start_offset
        or not rules.is_eligible(follower)
    ):
        return None
    return _propose(partition, IsrChange.EXPAND, (*partition.isr, broker_id), local_epoch)


def shrink_isr(
    partition: Partition,
    log_end_offset: int,
    now_ms: int,
    rules: IsrRules,
    local_epoch: int = -1,
) -> IsrProposal | None:
    """Proposes to remove the followers that lag; returns None if there are none."""
    if partition.pending is not None or not partition.is_leader or len(partition.isr) == 1:
        return None
    lagging = out_of_sync_replicas(partition, log_end_offset, now_ms, rules.max_lag_ms)
    if not lagging:
        return None
    isr = tuple(member for member in partition.isr if member not in lagging)
    return _propose(partition, IsrChange.SHRINK, isr, local_epoch)


def out_of_sync_replicas(
    partition: Partition, log_end_offset: int, now_ms: int, max_lag_ms: int
) -> frozenset[int]:
    """Returns the members of the ISR that have not been caught up for `max_lag_ms`."""
    followers = partition.followers
    return frozenset(
        member
        for member in partition.isr
        if member != partition.local_id
        and not (
            member in followers
            and followers[member].is_caught_up(log_end_offset, now_ms, max_lag_ms)
        )
    )


def _propose(
    partition: Partition, change: IsrChange, isr: tuple[int, ...], local_epoch: int
) -> IsrProposal:
    members = []
    for member in isr:
        follower = partition.followers.get(member)
        epoch = local_epoch if follower is None else follower.broker_epoch
        members.append(IsrMember(member, epoch))
    proposal = IsrProposal(
        partition.key,
        partition.topic_id,
        change,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(members),
    )
    partition.propose(proposal)
    return proposal


# --- outcomes


class CommittedState(NamedTuple):
    """The state of a partition in a successful response of the controller."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Outcome(Enum):
    """The outcome of a proposal, according to its response."""

    COMMITTED = auto()
    """The ISR is the proposed one: the high watermark may advance."""
    WITHDRAWN = auto()
    """The controller has not applied it, and the committed ISR is still current."""
    AWAIT_STATE = auto()
    """The controller has a newer state; the proposal stays pending until that arrives."""
    IGNORED = auto()
    """A newer state has ended the proposal already."""
    RETRY = auto()
    """Unexpected: the same proposal must be sent again."""


_NOT_APPLIED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""With these the controller says that the partition epoch is current and nothing was changed."""
_STALE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The leader's own state is old. Whether an earlier attempt was applied is unknown."""


def apply_outcome(
    partition: Partition, proposal: IsrProposal, response: CommittedState | ErrorCode
) -> Outcome:
    """Applies the controller's response to a proposal of this partition."""
    if partition.pending is not proposal:
        return Outcome.IGNORED
    if isinstance(response, CommittedState):
        if (
            response.leader_epoch != partition.leader_epoch
            or response.partition_epoch < partition.partition_epoch
        ):
            return Outcome.AWAIT_STATE
        partition.commit_proposal(response.isr, response.partition_epoch)
        return Outcome.COMMITTED
    if response in _NOT_APPLIED:
        partition.withdraw_proposal()
        return Outcome.WITHDRAWN
    return Outcome.AWAIT_STATE if response in _STALE else Outcome.RETRY
