"""Leaders change their ISR."""

from uuid import UUID

import pytest

from penstock.controller.image import ClusterImage
from penstock.controller.isr import alter_partition
from penstock.controller.metadata import Assignment, PartitionRecord, Put
from penstock.controller.partition_state_machine import ElectionRules
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from tests.support.cluster.images import (
    CLEAN,
    add_topic,
    assignment,
    broker,
    check_committable,
    image_of,
    set_assignment,
    set_state,
    state,
)

T_ID = UUID(int=0x500)


@pytest.fixture
def image() -> ClusterImage:
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1, 2), topic_id=T_ID)
    return image


def alter_isr(
    image: ClusterImage,
    isr: list[int],
    *,
    sender: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    rules: ElectionRules = CLEAN,
    recovery: int = 0,
) -> AlterPartitionResponsePartitionData:
    data = AlterPartitionRequestPartitionData(
        0, leader_epoch, [], [BrokerState(b, 1) for b in isr], recovery, partition_epoch
    )
    topic = AlterPartitionRequestTopicData(topic_id=T_ID, partitions=[data])
    request = AlterPartitionRequest(sender, 1, [topic])
    changes, response, _ = alter_partition(image, request, rules)
    check_committable(changes)
    image.apply(changes)
    return response.topics[0].partitions[0]


def test_shrink_and_expand(image: ClusterImage) -> None:
    """R3: a new partition epoch, the same leader epoch."""
    response = alter_isr(image, [0, 2])
    assert (response.error_code, response.isr) == (ErrorCode.NONE, [0, 2])
    assert (response.leader_id, response.leader_epoch, response.partition_epoch) == (0, 0, 1)
    response = alter_isr(image, [0, 2, 1], partition_epoch=1)
    assert (response.error_code, response.isr) == (ErrorCode.NONE, [0, 2, 1])
    partition = state(image, "t")
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((0, 2, 1), 0, 2)


def test_the_same_isr_changes_nothing(image: ClusterImage) -> None:
    before = state(image, "t")
    response = alter_isr(image, [0, 1, 2])
    assert (response.error_code, response.partition_epoch) == (ErrorCode.NONE, 0)
    assert state(image, "t") is before


def test_outdated_and_wrong_requests(image: ClusterImage) -> None:
    """R4: who is fenced changes nothing."""
    partition = PartitionRecord("t", 0, 0, 5, (0, 1), 7, 9)
    image.apply([Put(partition)])
    before = state(image, "t")

    def code(
        isr: list[int], sender: int = 0, leader_epoch: int = 5, partition_epoch: int = 9
    ) -> int:
        return alter_isr(
            image, isr, sender=sender, leader_epoch=leader_epoch, partition_epoch=partition_epoch
        ).error_code

    assert code([0], leader_epoch=4) == ErrorCode.FENCED_LEADER_EPOCH
    assert code([0], partition_epoch=8) == ErrorCode.INVALID_UPDATE_VERSION
    assert code([0], leader_epoch=6) == ErrorCode.NOT_CONTROLLER
    assert code([0], partition_epoch=10) == ErrorCode.NOT_CONTROLLER
    assert code([1], sender=1) == ErrorCode.INVALID_REQUEST
    assert code([1]) == ErrorCode.INVALID_REQUEST
    assert code([]) == ErrorCode.INVALID_REQUEST
    assert code([0, 0]) == ErrorCode.INVALID_REQUEST
    assert code([0, 9]) == ErrorCode.INVALID_REQUEST
    assert state(image, "t") is before


def test_leader_that_says_it_recovers(image: ClusterImage) -> None:
    assert alter_isr(image, [0], recovery=1).error_code == ErrorCode.INVALID_REQUEST


def test_leader_that_has_recovered_from_an_unclean_election(image: ClusterImage) -> None:
    """R5: it may say so, and may not go back."""
    image.apply([Put(PartitionRecord("t", 0, 0, 0, (0,), 7, 0, 1))])
    assert alter_isr(image, [0, 1], recovery=1).error_code == ErrorCode.INVALID_REQUEST
    response = alter_isr(image, [0], recovery=1)
    assert (response.error_code, response.leader_recovery_state) == (ErrorCode.NONE, 1)
    response = alter_isr(image, [0], recovery=0)
    assert (response.error_code, response.leader_recovery_state) == (ErrorCode.NONE, 0)
    assert state(image, "t").partition_epoch == 1
    response = alter_isr(image, [0], recovery=1, partition_epoch=1)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_repeated_proposal_succeeds_although_its_partition_epoch_is_old(
    image: ClusterImage,
) -> None:
    """The response to the first one may have been lost."""
    for _ in range(2):
        response = alter_isr(image, [2, 0])
        assert (response.error_code, response.partition_epoch) == (ErrorCode.NONE, 1)
    assert alter_isr(image, [0, 1]).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert alter_isr(image, [2, 0], leader_epoch=1).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.OPERATION_NOT_ATTEMPTED), (1, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    + [(version, ErrorCode.INELIGIBLE_REPLICA) for version in (2, 3)],
)
def test_old_versions_do_not_know_ineligible_replicas(
    image: ClusterImage, version: int, code: ErrorCode
) -> None:
    set_state(image, "t", 0, (0,))
    del image.brokers[2]
    data = [AlterPartitionRequestPartitionData(new_isr=[0, 2])]
    topics = [AlterPartitionRequestTopicData(topic_name="t", partitions=data)]
    result = alter_partition(image, AlterPartitionRequest(0, 1, topics), CLEAN, version)
    assert result.response.topics[0].partitions[0].error_code == code


def test_offline_replicas_are_ineligible(image: ClusterImage) -> None:
    set_state(image, "t", 0, (0,))
    offline = CLEAN._replace(offline_replicas={TopicPartition("t", 0): frozenset({2})})
    assert alter_isr(image, [0, 2], rules=offline).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_replicas_that_are_down_restarted_or_leaving_are_ineligible(image: ClusterImage) -> None:
    set_state(image, "t", 0, (0,))
    image.apply([Put(broker(1, epoch=3))])
    assert alter_isr(image, [0, 1]).error_code == ErrorCode.INELIGIBLE_REPLICA
    del image.brokers[2]
    assert alter_isr(image, [0, 2]).error_code == ErrorCode.INELIGIBLE_REPLICA
    image.apply([Put(broker(2))])
    leaving = CLEAN._replace(shutting_down=frozenset({2}))
    assert alter_isr(image, [0, 2], rules=leaving).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert alter_isr(image, [0, 2]).error_code == ErrorCode.NONE


def test_leader_that_leaves_hands_over_as_soon_as_it_can(image: ClusterImage) -> None:
    """R8"""
    set_state(image, "t", 0, (0,))
    leaving = CLEAN._replace(shutting_down=frozenset({0}))
    assert alter_isr(image, [0, 2], rules=leaving).error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = state(image, "t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)


def test_broker_whose_registration_is_over(image: ClusterImage) -> None:
    for request in (AlterPartitionRequest(0, 9, []), AlterPartitionRequest(8, 1, [])):
        changes, response, _ = alter_partition(image, request, CLEAN)
        assert changes == []
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_partitions_that_are_not_there(image: ClusterImage) -> None:
    data = [AlterPartitionRequestPartitionData(partition_index=4, new_isr=[0])]
    topics = [
        AlterPartitionRequestTopicData(topic_id=T_ID, partitions=data),
        AlterPartitionRequestTopicData(topic_id=UUID(int=9), partitions=data),
        AlterPartitionRequestTopicData(topic_name="u", partitions=data),
    ]
    changes, response, _ = alter_partition(image, AlterPartitionRequest(0, 1, topics), CLEAN)
    assert changes == []
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_old_versions_name_topics_and_plain_ids(image: ClusterImage) -> None:
    data = [AlterPartitionRequestPartitionData(new_isr=[0, 1])]
    topics = [AlterPartitionRequestTopicData(topic_name="t", partitions=data)]
    changes, response, _ = alter_partition(image, AlterPartitionRequest(0, 1, topics), CLEAN)
    assert response.topics[0].partitions[0].isr == [0, 1]
    assert len(changes) == 1


def test_a_partition_twice_in_a_request(image: ClusterImage) -> None:
    data = [
        AlterPartitionRequestPartitionData(new_isr=[0, 1]),
        AlterPartitionRequestPartitionData(new_isr=[0]),
    ]
    topics = [AlterPartitionRequestTopicData(topic_id=T_ID, partitions=data)]
    changes, response, _ = alter_partition(image, AlterPartitionRequest(0, 1, topics), CLEAN)
    check_committable(changes)
    assert [p.error_code for p in response.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]


def test_isr_that_ends_a_reassignment(image: ClusterImage) -> None:
    """R8: removed replicas leave, and a leader that stays keeps leading in a new epoch."""
    set_assignment(image, "t", Assignment((0, 2, 1), adding=(2,), removing=(1,)))
    set_state(image, "t", 0, (0, 1))
    response = alter_isr(image, [0, 1, 2])
    assert (response.error_code, response.isr) == (ErrorCode.NONE, [0, 2])
    assert (response.leader_epoch, response.partition_epoch) == (1, 1)
    assert assignment(image, "t") == Assignment((0, 2))


def test_isr_that_ends_a_reassignment_away_from_the_leader(image: ClusterImage) -> None:
    """R8: the leadership moves with the replicas."""
    set_assignment(image, "t", Assignment((2, 1, 0), adding=(2,), removing=(0,)))
    set_state(image, "t", 0, (0, 1))
    assert alter_isr(image, [0, 1, 2]).error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = state(image, "t")
    assert (partition.leader, partition.isr) == (2, (1, 2))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)
    assert assignment(image, "t") == Assignment((2, 1))
