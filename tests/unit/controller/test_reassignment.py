"""Partitions move to other brokers."""

import pytest
from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.reassignment import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.cluster import images
from tests.support.cluster.images import (
    CLEAN,
    add_topic,
    assignment,
    broker,
    broker_up,
    check_committable,
    image_of,
    set_state,
    state,
)

SAFE = CLEAN._replace(min_insync_replicas=lambda _topic: 2)


def move(
    image: ClusterImage,
    replicas: list[int] | None,
    *,
    topic: str = "t",
    partition: int = 0,
    allow_factor_change: bool = True,
    rules: ElectionRules = CLEAN,
) -> ErrorCode:
    topics = [ReassignableTopic(topic, [ReassignablePartition(partition, replicas)])]
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_factor_change, topics=topics
    )
    changes, response, _ = alter_partition_reassignments(image, request, rules)
    check_committable(changes)
    image.apply(changes)
    (result,) = response.responses[0].partitions
    assert (result.error_code == ErrorCode.NONE) == (result.error_message is None)
    assert response.error_code == ErrorCode.NONE
    return ErrorCode(result.error_code)


@pytest.fixture
def image() -> ClusterImage:
    image = image_of(0, 1, 2, 3, 4)
    add_topic(image, "t", (0, 1, 2))
    return image


def test_start(image: ClusterImage) -> None:
    """R8: new and old replicas hold it until the new ones are in sync."""
    assert move(image, [3, 1, 4]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((3, 1, 4, 0, 2), adding=(3, 4), removing=(0, 2))
    partition = state(image, "t")
    assert (partition.leader, partition.isr) == (0, (0, 1, 2))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)


def test_the_same_replicas_are_no_change(image: ClusterImage) -> None:
    before = state(image, "t")
    assert move(image, [0, 1, 2]) == ErrorCode.NONE
    assert state(image, "t") is before


def test_another_order_is_done_at_once(image: ClusterImage) -> None:
    """R8: on one node the same set completes at once too."""
    assert move(image, [2, 1, 0]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((2, 1, 0))
    assert state(image, "t").leader == 0


def test_fewer_replicas_are_done_at_once(image: ClusterImage) -> None:
    assert move(image, [2]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((2,))
    partition = state(image, "t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)


def test_fewer_replicas_wait_for_those_that_stay(image: ClusterImage) -> None:
    set_state(image, "t", 0, (0, 1))
    assert move(image, [2]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((2, 0, 1), removing=(0, 1))
    assert state(image, "t").leader == 0


def test_a_replaced_reassignment_removes_its_added_replicas(image: ClusterImage) -> None:
    move(image, [3, 1, 2])
    assert move(image, [4, 1, 2]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((4, 1, 2, 0), adding=(4,), removing=(0,))


def test_replace_keeps_replicas_that_are_still_being_added(image: ClusterImage) -> None:
    move(image, [3, 1, 2])
    set_state(image, "t", 0, (0, 1, 2, 3))
    assert move(image, [3, 4]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((3, 4, 1, 2, 0), adding=(3, 4), removing=(1, 2, 0))
    assert state(image, "t").isr == (0, 1, 2, 3)


def test_cancel(image: ClusterImage) -> None:
    """R8: back to the replicas it came from."""
    move(image, [3, 4, 1])
    set_state(image, "t", 3, (3, 1))
    assert move(image, None) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((1, 0, 2))
    partition = state(image, "t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)


def test_cancel_nothing(image: ClusterImage) -> None:
    assert move(image, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancel_that_would_lose_records(image: ClusterImage) -> None:
    """R5: only an unclean election could follow."""
    move(image, [3, 4])
    set_state(image, "t", 3, (3,))
    before = state(image, "t")
    assert move(image, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert state(image, "t") is before
    assert move(image, None, rules=images.UNCLEAN) == ErrorCode.NONE
    partition = state(image, "t")
    assert assignment(image, "t") == Assignment((0, 1, 2))
    assert (partition.leader, partition.isr) == (0, (0,))


def test_cancel_while_the_rest_of_the_isr_is_down(image: ClusterImage) -> None:
    """R7: a partition that is led is not left without a leader."""
    move(image, [3, 4])
    set_state(image, "t", 3, (3, 0))
    del image.brokers[0]
    assert move(image, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_cancel_while_nobody_leads(image: ClusterImage) -> None:
    move(image, [3, 4])
    set_state(image, "t", -1, (3, 0))
    for broker_id in (0, 3):
        del image.brokers[broker_id]
    assert move(image, None) == ErrorCode.NONE
    partition = state(image, "t")
    assert (partition.leader, partition.isr) == (-1, (0,))


@pytest.mark.parametrize("replicas", [[], [0, 0], [0, 9], [-1]])
def test_replicas_that_cannot_be(image: ClusterImage, replicas: list[int]) -> None:
    assert move(image, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_one_node() -> None:
    """R8: to itself is done at once, to unknown brokers is refused."""
    image = image_of(0)
    add_topic(image, "t", (0,))
    assert move(image, [0]) == ErrorCode.NONE
    assert move(image, [1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assignment(image, "t") == Assignment((0,))


def test_a_replica_that_stays_may_be_down(image: ClusterImage) -> None:
    del image.brokers[2]
    set_state(image, "t", 0, (0, 1))
    assert move(image, [3, 1, 2]) == ErrorCode.NONE
    assert move(image, [0, 1, 2]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((0, 1, 2))


def test_replication_factor_may_be_held(image: ClusterImage) -> None:
    code = move(image, [3, 4], allow_factor_change=False)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(image, [3, 4, 1], allow_factor_change=False) == ErrorCode.NONE
    assert move(image, [0, 1, 4], allow_factor_change=False) == ErrorCode.NONE


def test_unknown_partitions(image: ClusterImage) -> None:
    assert move(image, [0], topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(image, [0], partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_several_partitions_of_a_topic_are_one_topic_record() -> None:
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0,), (1,))
    partitions = [ReassignablePartition(0, [2]), ReassignablePartition(1, [2])]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic("t", [*partitions, ReassignablePartition(1, [0])])]
    )
    changes, response, _ = alter_partition_reassignments(image, request, CLEAN)
    check_committable(changes)
    image.apply(changes)
    codes = [result.error_code for result in response.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert assignment(image, "t", 0).adding == (2,)
    assert assignment(image, "t", 1).adding == (2,)


def test_a_partition_without_leader_moves_when_it_has_one(image: ClusterImage) -> None:
    """R7, R8: replicas are dropped only under a leader that has all records."""
    set_state(image, "t", -1, (0, 1))
    for broker_id in (0, 1):
        del image.brokers[broker_id]
    assert move(image, [0]) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((0, 1, 2), removing=(1, 2))
    assert (state(image, "t").leader, state(image, "t").isr) == (-1, (0, 1))
    image.apply(broker_up(image, broker(0, epoch=2), CLEAN))
    assert assignment(image, "t") == Assignment((0,))
    assert (state(image, "t").leader, state(image, "t").isr) == (0, (0,))


def test_list(image: ClusterImage) -> None:
    add_topic(image, "u", (0,), (1,))
    move(image, [3, 1, 2])
    move(image, [4], topic="u", partition=1)
    response = list_partition_reassignments(image, ListPartitionReassignmentsRequest(topics=None))
    assert [topic.name for topic in response.topics] == ["t", "u"]
    (ongoing,) = response.topics[0].partitions
    assert ongoing.replicas == [3, 1, 2, 0]
    assert (ongoing.adding_replicas, ongoing.removing_replicas) == ([3], [0])
    requested = [
        ListPartitionReassignmentsTopics("u", [0, 1, 7]),
        ListPartitionReassignmentsTopics("x", [0]),
    ]
    response = list_partition_reassignments(
        image, ListPartitionReassignmentsRequest(topics=requested)
    )
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics] == [
        ("u", [1])
    ]


def test_a_cancel_waits_for_as_many_replicas_as_records_were_committed_to(
    image: ClusterImage,
) -> None:
    """R2: a record that two brokers have is not left to one of them."""
    move(image, [0, 1, 2, 3])
    set_state(image, "t", 0, (0, 3))
    assert move(image, None, rules=SAFE) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((0, 1, 2, 3), removing=(3,))
    assert state(image, "t").isr == (0, 3)


def test_a_cancel_keeps_eligible_leader_replicas_too(image: ClusterImage) -> None:
    """R2: the leader may be the only one in sync, but not the only one with all records."""
    move(image, [0, 1, 2, 3])
    set_state(image, "t", 0, (0,))
    image.partitions[TopicPartition("t", 0)] = replace(
        state(image, "t"), eligible_leader_replicas=(3,)
    )
    assert move(image, None, rules=SAFE) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((0, 1, 2, 3), removing=(3,))


def test_a_cancel_drops_added_replicas_if_enough_others_are_in_sync(image: ClusterImage) -> None:
    move(image, [0, 1, 2, 3])
    set_state(image, "t", 0, (0, 1, 3))
    assert move(image, None, rules=SAFE) == ErrorCode.NONE
    assert assignment(image, "t") == Assignment((0, 1, 2))
