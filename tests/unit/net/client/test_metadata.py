"""`ClusterMetadata`: snapshots of a cluster, updated by responses."""

from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster, Node
from penstock.net.client.metadata import ClusterMetadata
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = UUID(int=7)
ORDERS = TopicPartition("orders", 0)


def partition(index: int, leader: int = 1, epoch: int = 3) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2]
    )


def topic(
    *partitions: MetadataResponsePartition,
    name: str = "orders",
    topic_id: UUID = ID,
    error: ErrorCode = ErrorCode.NONE,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name, topic_id=topic_id, partitions=list(partitions), error_code=error
    )


def response(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=f"host-{node_id}", port=9092)
            for node_id in brokers
        ],
        topics=list(topics),
        controller_id=brokers[0],
        cluster_id="c",
    )


def new_metadata(**options: int) -> ClusterMetadata:
    metadata = ClusterMetadata([Node(-1, "boot", 9092)], max_age_ms=1000, **options)
    metadata.add_topics(["orders"], 0)
    return metadata


def test_the_first_snapshot_has_the_bootstrap_servers() -> None:
    metadata = new_metadata()
    assert list(metadata.cluster.nodes) == [-1]
    assert metadata.needs_refresh(0)
    assert metadata.cluster.partition_count("orders") is None


def test_a_response_replaces_the_snapshot_and_does_not_change_the_old_one() -> None:
    metadata = new_metadata()
    before = metadata.cluster
    metadata.update(response(topic(partition(1), partition(0))), 5, complete=True)
    assert before.topics == {}
    assert metadata.cluster.partition_count("orders") == 2
    assert [info.partition for info in metadata.cluster.topics["orders"].partitions] == [0, 1]
    assert metadata.cluster.leader(ORDERS) == Node(1, "host-1", 9092)
    assert metadata.cluster.topic_names[ID] == "orders"
    assert not metadata.needs_refresh(1004)
    assert metadata.needs_refresh(1005)


def test_an_older_leader_epoch_does_not_win() -> None:
    """R4: brokers learn of a new leader at different times."""
    metadata = new_metadata()
    metadata.update(response(topic(partition(0, leader=2, epoch=4))), 0, complete=True)
    metadata.update(response(topic(partition(0, leader=1, epoch=3))), 0, complete=True)
    leader = metadata.cluster.leader(ORDERS)
    assert leader is not None
    assert leader.id == 2


def test_a_recreated_topic_starts_with_new_epochs() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0, leader=2, epoch=4))), 0, complete=True)
    recreated = topic(partition(0, leader=1, epoch=0), topic_id=UUID(int=8))
    metadata.update(response(recreated), 0, complete=True)
    info = metadata.cluster.partition(ORDERS)
    assert info is not None
    assert (info.leader, info.leader_epoch) == (1, 0)


def test_a_retriable_error_keeps_the_partitions_of_a_topic() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0))), 0, complete=True)
    metadata.update(response(topic(error=ErrorCode.LEADER_NOT_AVAILABLE)), 0, complete=True)
    assert metadata.cluster.partition_count("orders") == 1
    assert metadata.needs_refresh(0)


def test_a_partition_without_a_leader_makes_an_update_due() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0, leader=-1))), 0, complete=True)
    assert metadata.needs_refresh(0)
    assert metadata.cluster.leader(ORDERS) is None


def test_a_partial_response_keeps_the_other_topics() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0))), 0, complete=True)
    metadata.add_topics(["clicks"], 0)
    assert metadata.needs_refresh(0)
    clicks = topic(partition(0), name="clicks", topic_id=UUID(int=9))
    metadata.update(response(clicks), 0, complete=False)
    assert set(metadata.cluster.topics) == {"orders", "clicks"}


def test_topics_that_are_no_longer_of_interest_are_removed() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0))), 0, complete=True)
    metadata.set_topics(["clicks"], 0)
    metadata.update(response(topic(partition(0), name="clicks")), 0, complete=True)
    assert set(metadata.cluster.topics) == {"clicks"}


def test_idle_topics_are_removed() -> None:
    metadata = new_metadata(max_idle_ms=100)
    metadata.add_topics(["clicks"], 90)
    metadata.update(response(), 120, complete=True)
    assert metadata.topics == {"clicks"}


def test_a_leader_in_a_produce_response_is_applied_at_once() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0, leader=1, epoch=3))), 0, complete=True)
    assert not metadata.update_leader(ORDERS, 2, 3, [])
    assert not metadata.update_leader(ORDERS, 9, 4, [])
    assert metadata.update_leader(ORDERS, 9, 4, [Node(9, "new", 1)])
    assert metadata.cluster.leader(ORDERS) == Node(9, "new", 1)


def test_listeners_get_both_snapshots() -> None:
    metadata = new_metadata()
    updates: list[tuple[Cluster, Cluster]] = []
    metadata.listeners.append(lambda old, new: updates.append((old, new)))
    first = metadata.cluster
    metadata.update(response(topic(partition(0))), 0, complete=True)
    assert updates == [(first, metadata.cluster)]


def test_rebootstrap_replaces_the_brokers_and_keeps_the_topics() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0))), 0, complete=True)
    metadata.rebootstrap()
    assert list(metadata.cluster.nodes) == [-1]
    assert metadata.cluster.partition_count("orders") == 1
    assert metadata.needs_refresh(0)


def test_nodes_can_be_set_without_a_response() -> None:
    metadata = new_metadata()
    metadata.update(response(topic(partition(0))), 0, complete=True)
    metadata.set_nodes({1: Node(1, "moved", 9092)})
    assert metadata.cluster.leader(ORDERS) == Node(1, "moved", 9092)
