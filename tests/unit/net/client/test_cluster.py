"""What a client remembers of a cluster, as answers come in."""

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


def answer(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each, host=f"host-{each}", port=9092) for each in brokers
        ],
        topics=list(topics),
        controller_id=brokers[0],
        cluster_id="c",
    )


def metadata(**options: int) -> ClusterMetadata:
    found = ClusterMetadata([Node(-1, "boot", 9092)], max_age_ms=1000, **options)
    found.add_topics(["orders"], 0)
    return found


def test_before_the_first_answer_there_are_the_bootstrap_servers() -> None:
    known = metadata()
    assert list(known.cluster.nodes) == [-1]
    assert known.needs_refresh(0)
    assert known.cluster.partition_count("orders") is None


def test_an_answer_replaces_the_snapshot_and_leaves_the_old_one_alone() -> None:
    known = metadata()
    before = known.cluster
    known.update(answer(topic(partition(1), partition(0))), 5, complete=True)
    assert before.topics == {}
    assert known.cluster.partition_count("orders") == 2
    assert [each.partition for each in known.cluster.topics["orders"].partitions] == [0, 1]
    assert known.cluster.leader(ORDERS) == Node(1, "host-1", 9092)
    assert known.cluster.topic_names[ID] == "orders"
    assert not known.needs_refresh(1004)
    assert known.needs_refresh(1005)


def test_an_older_leader_epoch_does_not_win() -> None:
    """R4: brokers hear of a new leader at different times."""
    known = metadata()
    known.update(answer(topic(partition(0, leader=2, epoch=4))), 0, complete=True)
    known.update(answer(topic(partition(0, leader=1, epoch=3))), 0, complete=True)
    leader = known.cluster.leader(ORDERS)
    assert leader is not None
    assert leader.id == 2


def test_a_topic_that_was_made_anew_starts_again() -> None:
    known = metadata()
    known.update(answer(topic(partition(0, leader=2, epoch=4))), 0, complete=True)
    anew = topic(partition(0, leader=1, epoch=0), topic_id=UUID(int=8))
    known.update(answer(anew), 0, complete=True)
    found = known.cluster.partition(ORDERS)
    assert found is not None
    assert (found.leader, found.leader_epoch) == (1, 0)


def test_a_passing_error_keeps_the_partitions_that_were_known() -> None:
    known = metadata()
    known.update(answer(topic(partition(0))), 0, complete=True)
    known.update(answer(topic(error=ErrorCode.LEADER_NOT_AVAILABLE)), 0, complete=True)
    assert known.cluster.partition_count("orders") == 1
    assert known.needs_refresh(0)


def test_a_partition_without_a_leader_asks_for_another_update() -> None:
    known = metadata()
    known.update(answer(topic(partition(0, leader=-1))), 0, complete=True)
    assert known.needs_refresh(0)
    assert known.cluster.leader(ORDERS) is None


def test_an_answer_to_other_topics_leaves_the_rest() -> None:
    known = metadata()
    known.update(answer(topic(partition(0))), 0, complete=True)
    known.add_topics(["clicks"], 0)
    assert known.needs_refresh(0)
    other = topic(partition(0), name="clicks", topic_id=UUID(int=9))
    known.update(answer(other), 0, complete=False)
    assert set(known.cluster.topics) == {"orders", "clicks"}


def test_topics_that_are_not_wanted_any_more_go() -> None:
    known = metadata()
    known.update(answer(topic(partition(0))), 0, complete=True)
    known.set_topics(["clicks"], 0)
    known.update(answer(topic(partition(0), name="clicks")), 0, complete=True)
    assert set(known.cluster.topics) == {"clicks"}


def test_idle_topics_are_forgotten() -> None:
    known = metadata(max_idle_ms=100)
    known.add_topics(["clicks"], 90)
    known.update(answer(), 120, complete=True)
    assert known.topics == {"clicks"}


def test_a_leader_that_a_produce_answer_names_is_taken_at_once() -> None:
    known = metadata()
    known.update(answer(topic(partition(0, leader=1, epoch=3))), 0, complete=True)
    assert not known.update_leader(ORDERS, 2, 3, [])
    assert not known.update_leader(ORDERS, 9, 4, [])
    assert known.update_leader(ORDERS, 9, 4, [Node(9, "new", 1)])
    assert known.cluster.leader(ORDERS) == Node(9, "new", 1)


def test_listeners_get_both_snapshots() -> None:
    known = metadata()
    seen: list[tuple[Cluster, Cluster]] = []
    known.listeners.append(lambda old, new: seen.append((old, new)))
    first = known.cluster
    known.update(answer(topic(partition(0))), 0, complete=True)
    assert seen == [(first, known.cluster)]


def test_after_all_brokers_failed_the_bootstrap_servers_are_left_and_topics_kept() -> None:
    known = metadata()
    known.update(answer(topic(partition(0))), 0, complete=True)
    known.rebootstrap()
    assert list(known.cluster.nodes) == [-1]
    assert known.cluster.partition_count("orders") == 1
    assert known.needs_refresh(0)
