"""An empty store is filled with the metadata of another one (P3, R2)."""

from uuid import UUID

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerRecord,
    ClusterIdRecord,
    ControllerRecord,
    FeaturesRecord,
    IsrChangeRecord,
    LogDirEventRecord,
    PartitionRecord,
    PreferredElectionRecord,
    ProducerIdsRecord,
    Put,
    ReassignPartitionsRecord,
    Record,
    TopicRecord,
)
from penstock.controller.metadata_restore import restore_metadata
from tests.support.cluster.images import check_committable

CLUSTER = ClusterIdRecord("c")
TOPIC = TopicRecord("t", UUID(int=77), {0: Assignment((1,))})
STATE = PartitionRecord("t", 0, 1, 5, (1,), 7, partition_epoch=9)
RECORDS: list[Record] = [
    CLUSTER,
    BrokerRecord(1, (), None, 0, {}, 3),
    ControllerRecord(1, 0),
    FeaturesRecord({"group.version": 1}, 4),
    ReassignPartitionsRecord({}),
    PreferredElectionRecord(()),
    IsrChangeRecord(3, ()),
    LogDirEventRecord(4, 1),
    ProducerIdsRecord(1, 1000, 1999),
    TOPIC,
    STATE,
]


def restored(records: list[Record], *, is_current: bool) -> ClusterImage:
    changes = restore_metadata(records, is_current=is_current)
    check_committable(changes)
    assert changes[-1] == Put(CLUSTER), "a store that is filled in part has no cluster"
    image = ClusterImage()
    image.apply(changes)
    return image


def test_current_metadata_is_kept_as_it_is() -> None:
    image = restored(RECORDS, is_current=True)
    assert image.producer_ids == ProducerIdsRecord(1, 1000, 1999)
    assert image.partitions[STATE.key].leader_epoch == 5
    assert image.topics == {"t": TOPIC}


def test_nodes_are_new_and_without_sessions_or_requests() -> None:
    image = restored(RECORDS, is_current=True)
    assert image.partitions[STATE.key].partition_epoch == 0
    assert image.features == FeaturesRecord({"group.version": 1}, 0)
    assert (image.brokers, image.controller_id) == ({}, -1)
    assert image.reassign_partitions is None
    assert image.preferred_election is None
    assert (image.isr_changes, image.log_dir_events) == ({}, {})


def test_logs_may_be_newer_than_a_backup() -> None:
    image = restored(RECORDS, is_current=False)
    assert image.producer_ids == ProducerIdsRecord(1, 2000, 1_000_001_999)
    assert image.partitions[STATE.key].leader_epoch == 1005


def test_producer_ids_may_have_been_allocated_after_a_backup_without_any() -> None:
    image = restored([CLUSTER], is_current=False)
    assert image.producer_ids == ProducerIdsRecord(-1, 0, 999_999_999)
    assert restored([CLUSTER], is_current=True).producer_ids is None
