"""Proposals of a leader for its ISR, and the outcomes of them (R2, R3)."""

from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.replication.isr import (
    CommittedState,
    Outcome,
    apply_outcome,
    expand_isr,
    shrink_isr,
)
from penstock.replication.partition import IsrChange, IsrProposal, IsrRules, Partition

LAG_MS = 30_000
RULES = IsrRules(LAG_MS, lambda broker_id: 10 + broker_id)
START_MS = 1_000_000


def leader(*, isr: tuple[int, ...] = (1, 2, 3), end: int = 100) -> Partition:
    partition = Partition(TopicPartition("t", 0), UUID(int=9), 1)
    assert partition.update(
        leader=1,
        leader_epoch=5,
        partition_epoch=7,
        isr=isr,
        replicas=(1, 2, 3),
        log_end_offset=end,
        now_ms=START_MS,
    )
    return partition


def shrink(partition: Partition, now_ms: int, end: int = 100) -> IsrProposal | None:
    return shrink_isr(partition, end, now_ms, RULES, 11)


def expand(partition: Partition, broker_id: int, high_watermark: int = 0) -> IsrProposal | None:
    return expand_isr(partition, broker_id, high_watermark, RULES, 11)


# --- shrink


def test_a_follower_that_never_fetches_leaves_after_the_lag_time() -> None:
    partition = leader()
    partition.followers[2].record_fetch(100, 0, 100, START_MS, 12)
    assert shrink(partition, START_MS + LAG_MS) is None
    proposal = shrink(partition, START_MS + LAG_MS + 1)
    assert proposal is not None
    assert (proposal.change, proposal.isr) == (IsrChange.SHRINK, (1, 2))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)
    assert [member.broker_epoch for member in proposal.members] == [11, 12]
    assert partition.maximal_isr == {1, 2, 3}, "the controller has not removed it yet"
    assert shrink(partition, START_MS + 10 * LAG_MS) is None, "one proposal at a time"


def test_a_follower_with_all_records_stays_however_long_it_is_silent() -> None:
    partition = leader()
    for follower in partition.followers.values():
        follower.record_fetch(100, 0, 100, START_MS)
    assert shrink(partition, START_MS + 10 * LAG_MS) is None
    assert shrink(partition, START_MS + 10 * LAG_MS, end=101) is not None


def test_a_slow_follower_leaves_although_it_fetches() -> None:
    partition = leader()
    partition.followers[3].record_fetch(100, 0, 100, START_MS)
    now_ms = START_MS
    while now_ms <= START_MS + LAG_MS:
        now_ms += 500
        partition.followers[2].record_fetch(0, 0, 100, now_ms)
    proposal = shrink(partition, now_ms)
    assert proposal is not None
    assert proposal.isr == (1, 3)


def test_a_leader_alone_and_a_follower_propose_nothing() -> None:
    assert shrink(leader(isr=(1,)), START_MS + 10 * LAG_MS) is None
    partition = leader()
    partition.update(leader=2, leader_epoch=6, partition_epoch=8, isr=(1, 2), replicas=(1, 2, 3))
    assert shrink(partition, START_MS + 10 * LAG_MS) is None
    assert expand(partition, 3) is None


# --- expand


def test_a_follower_joins_once_it_has_the_high_watermark_and_the_start_of_the_epoch() -> None:
    partition = leader(isr=(1,), end=100)
    assert expand(partition, 2) is None, "it has not fetched"
    partition.followers[2].record_fetch(99, 0, 150, START_MS, 12)
    assert expand(partition, 2, high_watermark=50) is None, "records of earlier epochs are missing"
    partition.followers[2].record_fetch(120, 0, 150, START_MS, 12)
    assert expand(partition, 2, high_watermark=121) is None
    proposal = expand(partition, 2, high_watermark=120)
    assert proposal is not None
    assert (proposal.change, proposal.isr) == (IsrChange.EXPAND, (1, 2))
    assert partition.isr == (1,)
    assert partition.maximal_isr == {1, 2}, "the controller may have added it already"
    assert partition.high_watermark(150, START_MS + 10 * LAG_MS, RULES) == 120


def test_members_and_strangers_do_not_join() -> None:
    partition = leader(isr=(1, 2), end=0)
    partition.followers[2].record_fetch(100, 0, 100, START_MS)
    assert expand(partition, 2) is None
    assert expand(partition, 4) is None


@pytest.mark.parametrize(
    ("live_epoch", "fetched_epoch", "joins"),
    [(12, 12, True), (12, -1, True), (-1, 3, True), (12, 11, False), (None, 12, False)],
)
def test_only_the_broker_that_is_up_joins(
    live_epoch: int | None, fetched_epoch: int, joins: bool
) -> None:
    """KIP-903: a fetch of an earlier process of the broker does not count."""
    partition = leader(isr=(1,), end=0)
    partition.followers[2].record_fetch(100, 0, 100, START_MS, fetched_epoch)
    rules = IsrRules(LAG_MS, lambda broker_id: live_epoch)
    assert (expand_isr(partition, 2, 0, rules) is not None) == joins


# --- outcomes


def proposed() -> tuple[Partition, IsrProposal]:
    partition = leader(isr=(1,), end=0)
    partition.followers[2].record_fetch(100, 0, 100, START_MS)
    proposal = expand(partition, 2)
    assert proposal is not None
    return partition, proposal


def test_a_committed_isr_allows_the_next_proposal() -> None:
    partition, proposal = proposed()
    committed = CommittedState(5, 8, (1, 2))
    assert apply_outcome(partition, proposal, committed) is Outcome.COMMITTED
    assert (partition.isr, partition.partition_epoch, partition.pending) == ((1, 2), 8, None)
    assert shrink(partition, START_MS + 2 * LAG_MS, end=200) is not None


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_proposal_that_was_not_applied_is_withdrawn(code: ErrorCode) -> None:
    partition, proposal = proposed()
    assert apply_outcome(partition, proposal, code) is Outcome.WITHDRAWN
    assert (partition.isr, partition.pending) == ((1,), None)
    assert partition.maximal_isr == {1}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_a_leader_with_an_old_state_waits_for_the_new_one(code: ErrorCode) -> None:
    partition, proposal = proposed()
    assert apply_outcome(partition, proposal, code) is Outcome.AWAIT_STATE
    assert partition.pending is proposal
    assert partition.maximal_isr == {1, 2}
    assert expand(partition, 2) is None
    assert partition.update(
        leader=1, leader_epoch=5, partition_epoch=8, isr=(1, 2), replicas=(1, 2, 3)
    )
    assert partition.pending is None
    assert partition.isr == (1, 2)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_other_errors_are_retried(code: ErrorCode) -> None:
    partition, proposal = proposed()
    assert apply_outcome(partition, proposal, code) is Outcome.RETRY
    assert partition.pending is proposal


def test_a_response_that_a_newer_state_overtook_is_ignored() -> None:
    partition, proposal = proposed()
    partition.update(leader=1, leader_epoch=5, partition_epoch=9, isr=(1,), replicas=(1, 2, 3))
    assert apply_outcome(partition, proposal, CommittedState(5, 8, (1, 2))) is Outcome.IGNORED
    assert partition.isr == (1,)


@pytest.mark.parametrize("state", [CommittedState(6, 8, (1, 2)), CommittedState(5, 6, (1, 2))])
def test_a_committed_state_of_another_epoch_is_not_applied(state: CommittedState) -> None:
    partition, proposal = proposed()
    assert apply_outcome(partition, proposal, state) is Outcome.AWAIT_STATE
    assert partition.isr == (1,)
