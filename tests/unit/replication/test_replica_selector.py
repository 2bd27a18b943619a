"""Consumers read from a replica in their rack (KIP-392)."""

from uuid import UUID

from penstock.core.ids import TopicPartition
from penstock.replication.partition import Partition
from penstock.replication.replica_selector import preferred_read_replica

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def leader(isr: tuple[int, ...] = (1, 2, 3, 4)) -> Partition:
    partition = Partition(TopicPartition("t", 0), UUID(int=1), 1)
    partition.update(leader=1, leader_epoch=0, partition_epoch=0, isr=isr, replicas=(1, 2, 3, 4))
    for broker_id, end in ((2, 50), (3, 40), (4, 60)):
        partition.followers[broker_id].record_fetch(end, 10, 60, broker_id)
    return partition


def select(partition: Partition, rack: str, offset: int = 20) -> int | None:
    return preferred_read_replica(partition, offset, rack, RACKS.get)


def test_the_follower_of_the_rack_with_the_most_records_is_preferred() -> None:
    assert select(leader(), "b") == 2
    assert select(leader(), "c") == 4


def test_the_leader_serves_its_own_rack_and_clients_of_no_or_an_unknown_rack() -> None:
    assert select(leader(), "a") is None
    assert select(leader(), "") is None
    assert select(leader(), "x") is None


def test_a_follower_must_be_in_sync_and_have_the_offset() -> None:
    assert select(leader(isr=(1, 3, 4)), "b") == 3
    assert select(leader(isr=(1, 4)), "b") is None
    assert select(leader(), "b", offset=45) == 2
    assert select(leader(), "b", offset=51) is None
    assert select(leader(), "b", offset=9) is None


def test_among_equal_followers_the_one_that_caught_up_last_is_preferred() -> None:
    partition = leader()
    partition.followers[3].record_fetch(50, 10, 50, 30)
    assert select(partition, "b") == 3
    partition.followers[2].record_fetch(50, 10, 50, 31)
    assert select(partition, "b") == 2
    partition.followers[3].record_fetch(50, 10, 50, 31)
    assert select(partition, "b") == 3


def test_a_broker_that_the_client_cannot_reach_is_not_preferred() -> None:
    racks = {**RACKS, 2: None}
    assert preferred_read_replica(leader(), 20, "b", racks.get) == 3
