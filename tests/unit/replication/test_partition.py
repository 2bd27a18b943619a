"""A partition as its replica sees it: leadership, epochs, the high watermark (R2, R4)."""

from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.replication.partition import Partition


def partition_of(
    *, leader: int = 1, epoch: int = 5, partition_epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3)
) -> Partition:
    made = Partition(TopicPartition("t", 0), UUID(int=1), 1)
    assert update(made, leader, epoch, partition_epoch, isr)
    return made


def update(
    partition: Partition, leader: int, epoch: int, partition_epoch: int, isr: tuple[int, ...]
) -> bool:
    return partition.update(
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=isr,
        replicas=(1, 2, 3),
    )


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
    assert partition.high_watermark(100) == 0, "nothing was heard of the followers yet"
    partition.follower_fetched(2, 60)
    assert partition.high_watermark(100) == 0
    partition.follower_fetched(3, 80)
    assert partition.high_watermark(100) == 60
    partition.follower_fetched(2, 120)
    assert partition.high_watermark(100) == 80, "never above the leader's own end"
    partition.follower_fetched(3, 130)
    assert partition.high_watermark(100) == 100


def test_who_left_the_isr_is_not_waited_for() -> None:
    partition = partition_of()
    partition.follower_fetched(2, 60)
    assert update(partition, 1, 5, 1, (1, 2))
    assert partition.high_watermark(100) == 60
    assert update(partition, 1, 5, 2, (1,))
    assert partition.high_watermark(100) == 100


def test_a_new_epoch_forgets_what_followers_had() -> None:
    """R4: their logs may be cut before they follow."""
    partition = partition_of()
    partition.follower_fetched(2, 60)
    partition.follower_fetched(3, 60)
    assert update(partition, 1, 6, 1, (1, 2, 3))
    assert partition.high_watermark(100) == 0


def test_the_same_epoch_keeps_it() -> None:
    partition = partition_of()
    partition.follower_fetched(2, 60)
    partition.follower_fetched(3, 70)
    assert update(partition, 1, 5, 1, (1, 2, 3))
    assert partition.high_watermark(100) == 60


def test_a_removed_replica_does_not_lead() -> None:
    partition = partition_of()
    partition.resign()
    assert partition.check_leader() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_leader(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
