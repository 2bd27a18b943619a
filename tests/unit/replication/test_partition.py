"""A partition as its replica sees it: leadership, epochs, the high watermark (R2, R4)."""

from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.replication.partition import IsrRules, Partition

MAX_LAG_MS = 30_000
ALL_ALIVE = IsrRules(MAX_LAG_MS, lambda broker_id: -1)
NOW_MS = 1_000_000


def partition_of(
    *, leader: int = 1, epoch: int = 5, partition_epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3)
) -> Partition:
    partition = Partition(TopicPartition("t", 0), UUID(int=1), 1)
    assert update(partition, leader, epoch, partition_epoch, isr)
    return partition


def update(
    partition: Partition,
    leader: int,
    epoch: int,
    partition_epoch: int,
    isr: tuple[int, ...],
    *,
    log_end_offset: int = 0,
) -> bool:
    return partition.update(
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=isr,
        replicas=(1, 2, 3),
        log_end_offset=log_end_offset,
        now_ms=NOW_MS,
    )


def fetch(partition: Partition, broker_id: int, offset: int, *, end: int = 100) -> None:
    partition.followers[broker_id].record_fetch(offset, 0, end, NOW_MS)


def high_watermark(
    partition: Partition,
    log_end_offset: int = 100,
    now_ms: int = NOW_MS,
    rules: IsrRules = ALL_ALIVE,
) -> int:
    return partition.high_watermark(log_end_offset, now_ms, rules)


def test_nobody_leads_before_the_controller_says_so() -> None:
    fresh = Partition(TopicPartition("t", 0), UUID(int=1), 1)
    assert not fresh.is_leader
    assert fresh.check_leader() is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("client_epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epochs_of_clients_of_the_leader(client_epoch: int, code: ErrorCode) -> None:
    assert partition_of().check_leader(client_epoch) is code


@pytest.mark.parametrize(
    ("client_epoch", "code"),
    [
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epochs_of_clients_of_a_follower(client_epoch: int, code: ErrorCode) -> None:
    assert partition_of(leader=2).check_leader(client_epoch) is code


def test_what_is_older_than_what_is_known_is_not_taken_over() -> None:
    partition = partition_of(partition_epoch=7)
    assert not update(partition, 2, 5, 7, (2,))
    assert not update(partition, 2, 5, 6, (2,))
    assert not update(partition, 2, 4, 8, (2,))
    assert (partition.leader, partition.isr, partition.partition_epoch) == (1, (1, 2, 3), 7)
    assert update(partition, 2, 6, 8, (2, 3))
    assert (partition.is_leader, partition.leader, partition.isr) == (False, 2, (2, 3))


def test_the_high_watermark_is_what_all_in_sync_have() -> None:
    """R2."""
    partition = partition_of()
    assert high_watermark(partition) == -1, "no follower has fetched yet"
    fetch(partition, 2, 60)
    assert high_watermark(partition) == -1
    fetch(partition, 3, 80)
    assert high_watermark(partition) == 60
    fetch(partition, 2, 120)
    assert high_watermark(partition) == 80, "never above the leader's own end"
    fetch(partition, 3, 130)
    assert high_watermark(partition) == 100


def test_replicas_that_left_the_isr_long_ago_are_not_waited_for() -> None:
    partition = partition_of()
    fetch(partition, 2, 60)
    late_ms = NOW_MS + MAX_LAG_MS + 1
    assert update(partition, 1, 5, 1, (1, 2))
    assert high_watermark(partition, now_ms=late_ms) == 60
    assert update(partition, 1, 5, 2, (1,))
    assert high_watermark(partition, now_ms=late_ms) == 100


def test_a_follower_that_is_about_to_join_the_isr_is_waited_for() -> None:
    """Otherwise it would never reach the high watermark of a leader with steady appends."""
    partition = partition_of(isr=(1,))
    assert high_watermark(partition) == 100, "nothing is known of the followers"
    fetch(partition, 2, 90, end=90)
    assert high_watermark(partition) == 90
    assert high_watermark(partition, now_ms=NOW_MS + MAX_LAG_MS) == 90
    assert high_watermark(partition, now_ms=NOW_MS + MAX_LAG_MS + 1) == 100
    dead = IsrRules(MAX_LAG_MS, lambda broker_id: None)
    assert high_watermark(partition, rules=dead) == 100, "its broker is down: it cannot join"


def test_a_broker_that_was_restarted_is_not_waited_for() -> None:
    """KIP-903: what the earlier process had fetched may be lost."""
    rules = IsrRules(MAX_LAG_MS, lambda broker_id: 7)
    partition = partition_of(isr=(1,))
    partition.followers[2].record_fetch(90, 0, 90, NOW_MS, 6)
    assert high_watermark(partition, rules=rules) == 100
    partition.followers[2].record_fetch(90, 0, 90, NOW_MS, 7)
    assert high_watermark(partition, rules=rules) == 90


def test_a_new_leader_forgets_what_followers_had() -> None:
    """R4: their logs may be truncated before they follow."""
    partition = partition_of()
    fetch(partition, 2, 60)
    fetch(partition, 3, 60)
    assert update(partition, 2, 6, 1, (1, 2, 3))
    assert not partition.followers
    assert update(partition, 1, 7, 2, (1, 2, 3), log_end_offset=70)
    assert partition.epoch_start_offset == 70
    assert high_watermark(partition) == -1
    assert {follower.last_caught_up_ms for follower in partition.followers.values()} == {NOW_MS}


def test_a_leader_that_stays_keeps_what_followers_had() -> None:
    partition = partition_of()
    fetch(partition, 2, 60)
    fetch(partition, 3, 70)
    assert update(partition, 1, 5, 1, (1, 2, 3))
    assert high_watermark(partition) == 60
    assert partition.epoch_start_offset == 0
    assert update(partition, 1, 6, 2, (1, 2, 3), log_end_offset=80)
    assert high_watermark(partition) == 60
    assert partition.epoch_start_offset == 80


def test_the_low_watermark_is_where_all_replicas_that_are_up_start() -> None:
    partition = partition_of()
    assert partition.low_watermark(50, ALL_ALIVE) == -1
    partition.followers[2].record_fetch(100, 30, 100, NOW_MS)
    partition.followers[3].record_fetch(100, 40, 100, NOW_MS)
    assert partition.low_watermark(50, ALL_ALIVE) == 30
    without_2 = IsrRules(MAX_LAG_MS, lambda broker_id: None if broker_id == 2 else -1)
    assert partition.low_watermark(50, without_2) == 40
    assert partition.low_watermark(10, without_2) == 10


def test_added_replicas_do_not_count_as_under_replicated() -> None:
    partition = partition_of()
    assert not partition.is_under_replicated
    assert update(partition, 1, 5, 1, (1, 2))
    assert partition.is_under_replicated
    assert partition.update(
        leader=1, leader_epoch=5, partition_epoch=2, isr=(1, 2), replicas=(1, 2, 3), adding=(3,)
    )
    assert not partition.is_under_replicated
    assert update(partition, 2, 6, 3, (2,))
    assert not partition.is_under_replicated, "the leader counts it"


def test_a_removed_replica_does_not_lead() -> None:
    partition = partition_of()
    partition.resign()
    assert partition.check_leader() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_leader(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
