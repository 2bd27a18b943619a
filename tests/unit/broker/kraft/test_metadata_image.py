"""The metadata of a Kafka cluster in KRaft mode becomes changes of a new store (S1, R2, X2, X3)."""

from collections.abc import Iterable
from uuid import UUID

from penstock.broker.kraft.metadata_image import KraftImage
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import PartitionRecord
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.stored import cluster_metadata as kraft
from tests.support.cluster.images import check_committable

ID = UUID(int=77)
T0 = TopicPartition("t", 0)


def image_after(
    records: Iterable[Message], *, broker_id: int = 1, logs: Iterable[TopicPartition] = (T0,)
) -> ClusterImage:
    """Returns the image of a store that has taken over the records."""
    source = KraftImage()
    for record in records:
        source.apply(record)
    image = ClusterImage()
    changes = source.changes(image, broker_id, set(logs))
    check_committable(changes)
    image.apply(changes)
    return image


def partition(*isr: int, eligible: list[int] | None = None) -> list[Message]:
    return [
        kraft.TopicRecord("t", ID),
        kraft.PartitionRecord(
            0, ID, [1, 2, 3], list(isr), leader=3, leader_epoch=5, eligible_leader_replicas=eligible
        ),
    ]


def state(image: ClusterImage) -> PartitionRecord:
    return image.partitions[T0]


def test_the_first_broker_leads_what_it_is_in_sync_with() -> None:
    record = state(image_after(partition(2, 1)))
    assert (record.leader, record.isr, record.leader_epoch) == (1, (2, 1), 6)


def test_other_partitions_wait_for_their_brokers() -> None:
    record = state(image_after(partition(2, 3)))
    assert (record.leader, record.isr, record.leader_epoch) == (-1, (2, 3), 6)


def test_a_broker_without_the_log_does_not_lead() -> None:
    """Its disk was replaced: the other replicas have the records."""
    assert state(image_after(partition(1, 2), logs=())).leader == -1
    assert state(image_after(partition(1), logs=())).leader == 1, "nobody else has them"


def test_an_eligible_leader_replica_leads() -> None:
    """KIP-966."""
    record = state(image_after(partition(eligible=[1, 2])))
    assert (record.leader, record.isr) == (1, (1,))
    assert record.eligible_leader_replicas == (2,)


def test_changes_of_partitions_add_up() -> None:
    image = image_after(
        [
            *partition(3),
            kraft.PartitionChangeRecord(0, ID, isr=[3, 1]),
            kraft.PartitionChangeRecord(0, ID, leader=1),
            kraft.PartitionChangeRecord(0, ID, replicas=[1, 2], removing_replicas=[3]),
        ]
    )
    assert image.topics["t"].assignments[0].replicas == (1, 2)
    assert image.topics["t"].assignments[0].removing == (3,)
    record = state(image)
    assert (record.leader, record.isr, record.leader_epoch) == (1, (3, 1), 7)


def test_a_deleted_topic_leaves_nothing() -> None:
    image = image_after(
        [
            *partition(1),
            kraft.ConfigRecord(2, "t", "retention.ms", "1"),
            kraft.RemoveTopicRecord(ID),
            kraft.TopicRecord("t", UUID(int=78)),
            kraft.PartitionRecord(0, UUID(int=78), [1], [1], leader=1, leader_epoch=0),
        ]
    )
    assert image.topics["t"].topic_id == UUID(int=78)
    assert image.config("topics", "t") == {}


def test_a_transaction_applies_as_a_whole() -> None:
    """KIP-868."""
    aborted = kraft.ConfigRecord(4, "", "aborted", "1")
    unfinished = kraft.ConfigRecord(4, "", "unfinished", "1")
    image = image_after(
        [
            kraft.BeginTransactionRecord("a"),
            aborted,
            kraft.AbortTransactionRecord("no reason"),
            kraft.BeginTransactionRecord("b"),
            kraft.ConfigRecord(4, "", "message.max.bytes", "1"),
            kraft.EndTransactionRecord(),
            kraft.BeginTransactionRecord("c"),
            unfinished,
        ]
    )
    assert image.config("brokers", "<default>") == {"message.max.bytes": "1"}


def test_feature_levels_are_those_that_this_release_supports() -> None:
    image = image_after(
        [
            kraft.FeatureLevelRecord("transaction.version", 9),
            kraft.FeatureLevelRecord("metadata.version", 30),
        ]
    )
    assert image.features is not None
    assert image.features.levels == {"transaction.version": 2}
