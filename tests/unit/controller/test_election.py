"""Who leads after brokers went and came, on request, and for the balance."""

from collections import Counter

import pytest
from msgspec.structs import replace

from penstock.controller.election import (
    PREFERRED,
    UNCLEAN,
    balance_leaders,
    controlled_shutdown,
    elect_leaderless,
    elect_leaders,
    imbalance,
    update_partition_states,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment, Change, PartitionRecord, Put
from penstock.controller.partition_state_machine import (
    RECOVERING,
    ElectionRules,
    PartitionChanges,
    PartitionState,
    next_partition_state,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from tests.support.cluster import images
from tests.support.cluster.images import (
    CLEAN,
    add_topic,
    assignment,
    broker,
    broker_down,
    broker_up,
    check_committable,
    image_of,
    set_assignment,
    set_state,
    state,
)


def apply(image: ClusterImage, changes: list[Change]) -> None:
    check_committable(changes)
    image.apply(changes)


def brief(record: PartitionRecord) -> tuple[int, tuple[int, ...], int, int]:
    return record.leader, record.isr, record.leader_epoch, record.partition_epoch


# --- brokers go


def test_leader_fails_and_the_next_in_sync_replica_leads() -> None:
    """R5, R7: in the order of the assignment, with new epochs."""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1, 2))
    set_state(image, "t", 0, (2, 0, 1))
    apply(image, broker_down(image, [0], CLEAN))
    assert brief(state(image, "t")) == (1, (2, 1), 1, 1)
    assert state(image, "t").controller_epoch == 7
    assert 0 not in image.brokers


def test_a_replica_that_is_not_in_sync_is_passed_over() -> None:
    """R5"""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1, 2))
    set_state(image, "t", 0, (0, 2))
    apply(image, broker_down(image, [0], CLEAN))
    assert brief(state(image, "t")) == (2, (2,), 1, 1)


def test_follower_fails() -> None:
    """R7: it leaves the ISR; the leader stays."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    apply(image, broker_down(image, [1], CLEAN))
    assert brief(state(image, "t")) == (0, (0,), 1, 1)


def test_the_last_in_sync_replica_stays_in_the_isr() -> None:
    """R5, R7: nobody leads until it is back, though another replica is up."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    set_state(image, "t", 0, (0,))
    apply(image, broker_down(image, [0], CLEAN))
    assert brief(state(image, "t")) == (-1, (0,), 1, 1)
    apply(image, broker_up(image, broker(0, epoch=2), CLEAN))
    assert brief(state(image, "t")) == (0, (0,), 2, 2)


def test_all_fail_at_once() -> None:
    """R7: each member of the ISR had every record; the first to restart leads, alone in sync."""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1, 2))
    set_state(image, "t", 0, (0, 1))
    apply(image, broker_down(image, [0, 1, 2], CLEAN))
    assert brief(state(image, "t")) == (-1, (0, 1), 1, 1)
    apply(image, broker_up(image, broker(2, epoch=2), CLEAN))
    assert brief(state(image, "t")) == (-1, (0, 1), 1, 1)
    apply(image, broker_up(image, broker(1, epoch=3), CLEAN))
    assert brief(state(image, "t")) == (1, (1,), 2, 2)


def test_unclean_election_where_the_topic_allows_it() -> None:
    """R5: a live replica leads, and only it is in sync until it has recovered."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1, 2))
    add_topic(image, "u", (0, 1, 2))
    for topic in "tu":
        set_state(image, topic, 0, (0,))
    rules = CLEAN._replace(allows_unclean=lambda topic: topic == "t")
    apply(image, broker_down(image, [0], rules))
    assert brief(state(image, "t")) == (1, (1,), 1, 1)
    assert brief(state(image, "u")) == (-1, (0,), 1, 1)
    apply(image, elect_leaderless(image, images.UNCLEAN))
    assert brief(state(image, "u")) == (1, (1,), 2, 2)
    assert state(image, "u").leader_recovery_state == 1


def test_new_leaders_are_spread_over_the_brokers_in_one_event() -> None:
    """R5: the preferred replica leads if it can, else the broker that leads least."""
    image = image_of(*range(4))
    add_topic(image, "t", *([(0, 1, 2, 3)] * 900), (3, 1), (3, 1))
    changes = broker_down(image, [0], CLEAN)
    assert changes == broker_down(image, [0], CLEAN)
    apply(image, changes)
    leaders = Counter(record.leader for record in image.partitions.values())
    assert leaders == {1: 301, 2: 301, 3: 300}
    add_topic(image, "u", *([(2, 3, 1)] * 50))
    for partition in range(50):
        set_state(image, "u", 3, (3, 1, 2), partition)
    apply(image, broker_down(image, [3], CLEAN))
    assert {record.leader for record in image.partitions_of("u")} == {2}


def test_partitions_elsewhere_do_not_change() -> None:
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1), (1, 2))
    untouched = state(image, "t", 1)
    apply(image, broker_down(image, [0], CLEAN))
    assert state(image, "t", 1) is untouched


def test_a_broker_that_is_down_already() -> None:
    image = image_of(0)
    add_topic(image, "t", (0,))
    assert broker_down(image, [5], CLEAN) == []


# --- brokers come


def test_a_restarted_broker_is_a_follower() -> None:
    """R4: it must catch up before it is in sync again."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    apply(image, broker_down(image, [0], CLEAN))
    before = state(image, "t")
    apply(image, broker_up(image, broker(0, epoch=2), CLEAN))
    assert state(image, "t") is before
    assert image.brokers[0].epoch == 2


def test_broker_restarts_before_its_failure_was_noticed() -> None:
    """R7: it may have lost records, so others lead; without others it leads in a new epoch."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1), (1, 0), (0,))
    apply(image, broker_up(image, broker(0, epoch=2), CLEAN))
    assert [brief(r) for r in image.partitions_of("t")] == [
        (1, (1,), 1, 1),
        (1, (1,), 1, 1),
        (0, (0,), 1, 1),
    ]


# --- controlled shutdown


def shut_down(image: ClusterImage, broker_id: int, epoch: int = 1) -> ControlledShutdownResponse:
    request = ControlledShutdownRequest(broker_id, epoch)
    changes, response, _ = controlled_shutdown(image, request, CLEAN)
    apply(image, changes)
    return response


def test_controlled_shutdown_moves_leaders_away() -> None:
    """R8: it leads what no other broker can lead until it stops."""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1), (1, 0), (0, 2), (0,))
    set_state(image, "t", 0, (0,), partition=2)
    response = shut_down(image, 0)
    assert [brief(r) for r in image.partitions_of("t")] == [
        (1, (1,), 1, 1),
        (1, (1,), 1, 1),
        (0, (0,), 0, 0),
        (0, (0,), 0, 0),
    ]
    assert response.error_code == ErrorCode.NONE
    remaining = [(p.topic_name, p.partition_index) for p in response.remaining_partitions]
    assert remaining == [("t", 2)]
    assert 0 in image.brokers


def test_controlled_shutdown_of_the_last_but_one_that_leaves_too() -> None:
    """R8: between two that leave, the partition still has a leader (R7); it does not wait."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    rules = CLEAN._replace(shutting_down=frozenset({1}))
    changes, response, _ = controlled_shutdown(image, ControlledShutdownRequest(0, 1), rules)
    assert changes == []
    assert response.remaining_partitions == []


def test_controlled_shutdown_does_not_wait_for_brokers_that_are_down() -> None:
    """R8: the last broker of a cluster stops at once."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 2), (0, 1))
    for partition in range(2):
        set_state(image, "t", 0, (0,), partition=partition)
    response = shut_down(image, 0)
    assert [p.partition_index for p in response.remaining_partitions] == [1]


def test_controlled_shutdown_refused() -> None:
    image = image_of(0)
    assert shut_down(image, 3).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert shut_down(image, 0, epoch=9).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert shut_down(image, 0, epoch=-1).error_code == ErrorCode.NONE


# --- eligible leader replicas

SAFE = CLEAN._replace(min_insync_replicas=lambda _topic: 2)
"""`min.insync.replicas=2`"""


def leave(image: ClusterImage, broker_id: int, rules: ElectionRules = SAFE) -> None:
    """A controlled shutdown, and the end of the broker's session."""
    changes, response, _ = controlled_shutdown(image, ControlledShutdownRequest(broker_id), rules)
    assert response.remaining_partitions == []
    apply(image, changes)
    apply(image, broker_down(image, [broker_id], rules))


def join(image: ClusterImage, broker_id: int, *, is_unclean: bool = False) -> None:
    image.apply([Put(replace(broker(broker_id, epoch=9), is_unclean=is_unclean))])
    live = image.brokers.keys()
    apply(image, update_partition_states(image, live, SAFE, restarted={broker_id}))


def replicas_of(image: ClusterImage) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    record = state(image, "t")
    return record.leader, record.isr, record.eligible_leader_replicas


@pytest.fixture
def last() -> ClusterImage:
    """Brokers 0 and 1 were stopped; 2 had lost its power before, and its session ends last."""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1, 2))
    leave(image, 0)
    leave(image, 1)
    assert replicas_of(image) == (2, (2,), (1,))
    apply(image, broker_down(image, [2], SAFE))
    assert replicas_of(image) == (-1, (2,), (1,))
    return image


def test_a_broker_that_lost_its_power_waits_for_those_that_were_stopped(
    last: ClusterImage,
) -> None:
    """R7: with fewer than `min.insync.replicas` in sync, nothing was committed without them."""
    join(last, 2, is_unclean=True)
    assert replicas_of(last) == (-1, (1,), ())
    join(last, 0)
    assert replicas_of(last) == (-1, (1,), ())
    join(last, 1)
    assert replicas_of(last) == (1, (1,), ())


def test_a_broker_that_was_stopped_leads_if_the_last_in_sync_one_is_down(
    last: ClusterImage,
) -> None:
    join(last, 1)
    assert replicas_of(last) == (1, (1,), (2,))
    join(last, 2, is_unclean=True)
    assert replicas_of(last) == (1, (1,), ())


def test_the_last_in_sync_broker_leads_if_it_lost_nothing(last: ClusterImage) -> None:
    join(last, 2)
    assert replicas_of(last) == (2, (2,), (1,))
    alter_isr(last, (2, 0))
    assert replicas_of(last) == (2, (2, 0), ())


def alter_isr(image: ClusterImage, isr: tuple[int, ...]) -> None:
    before = PartitionState(state(image, "t"), assignment(image, "t"))
    leaderships = PartitionChanges(image).leaderships
    after = next_partition_state(before, {0, 1, 2}, 7, SAFE, leaderships, isr=isr, by_leader=True)
    assert after is not None
    image.apply([Put(after.record)])


def test_followers_that_lag_below_min_insync_replicas_may_lead() -> None:
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1, 2))
    alter_isr(image, (0,))
    assert replicas_of(image) == (0, (0,), (1, 2))
    apply(image, broker_down(image, [0], SAFE))
    assert replicas_of(image) == (1, (1, 2), ())


def test_no_replica_outside_the_isr_may_lead_once_the_isr_can_commit_without_it(
    last: ClusterImage,
) -> None:
    """`min.insync.replicas` is lowered to 1 while 2 leads alone."""
    join(last, 2)
    apply(last, elect_leaderless(last, CLEAN))
    assert replicas_of(last) == (2, (2,), ())
    apply(last, elect_leaderless(last, SAFE))
    join(last, 1)
    apply(last, broker_down(last, [2], SAFE))
    assert replicas_of(last) == (-1, (2,), ())


def test_an_unclean_election_ends_the_eligibility_of_others(last: ClusterImage) -> None:
    record = broker(0, epoch=9)
    unclean = SAFE._replace(allows_unclean=lambda _topic: True)
    apply(last, broker_up(last, record, unclean))
    assert replicas_of(last) == (0, (0,), ())
    assert state(last, "t").leader_recovery_state == RECOVERING


def test_a_broker_that_does_not_report_losses_is_not_eligible(last: ClusterImage) -> None:
    """Kafka's brokers may have lost records when they return."""
    image = last
    image.apply([Put(broker(1, epoch=9))])
    rules = SAFE._replace(unreliable=frozenset({1}))
    live = image.brokers.keys()
    apply(image, update_partition_states(image, live, rules, restarted={1}))
    assert replicas_of(image) == (-1, (2,), ())


def test_a_replica_in_a_failed_log_directory_is_not_eligible() -> None:
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1, 2))
    key = TopicPartition("t", 0)
    rules = SAFE._replace(offline_replicas={key: frozenset({1})})
    apply(image, elect_leaderless(image, rules))
    leave(image, 2, rules)
    assert replicas_of(image) == (0, (0,), (2,))


# --- ElectLeaders


def elect(
    image: ClusterImage, election_type: int, partitions: dict[str, list[int]] | None
) -> dict[tuple[str, int], ErrorCode]:
    topics = None
    if partitions is not None:
        topics = [ElectLeadersTopicPartitions(t, numbers) for t, numbers in partitions.items()]
    changes, response, _ = elect_leaders(image, ElectLeadersRequest(election_type, topics), CLEAN)
    apply(image, changes)
    return {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.fixture
def moved() -> ClusterImage:
    """t-0 can go back to 0, t-1 is where it belongs, t-2's preferred lags, t-3 has no leader."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1), (1, 0), (0, 1), (5, 0))
    set_state(image, "t", 1, (1, 0), partition=0)
    set_state(image, "t", 1, (1,), partition=2)
    set_state(image, "t", -1, (5,), partition=3)
    return image


def test_preferred_election(moved: ClusterImage) -> None:
    """R8"""
    assert elect(moved, PREFERRED, {"t": [0, 1, 2, 3, 4], "u": [0]}) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 3): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert brief(state(moved, "t", 0)) == (0, (1, 0), 1, 1)


def test_preferred_election_of_all(moved: ClusterImage) -> None:
    assert elect(moved, PREFERRED, None) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 3): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }


def test_unclean_election_on_request(moved: ClusterImage) -> None:
    """R5: an unclean election on request needs no setting."""
    assert elect(moved, UNCLEAN, {"t": [0, 3]}) == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 3): ErrorCode.NONE,
    }
    assert brief(state(moved, "t", 3)) == (0, (0,), 1, 1)


def test_unclean_election_without_any_live_replica() -> None:
    image = image_of(0)
    add_topic(image, "t", (0,))
    set_assignment(image, "t", Assignment((8, 9)))
    set_state(image, "t", -1, (9,))
    codes = elect(image, UNCLEAN, {"t": [0]})
    assert codes == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_a_partition_named_twice_is_elected_once(moved: ClusterImage) -> None:
    topics = [ElectLeadersTopicPartitions("t", [0, 0])]
    changes, response, _ = elect_leaders(moved, ElectLeadersRequest(PREFERRED, topics), CLEAN)
    apply(moved, changes)
    results = response.replica_election_results[0].partition_result
    assert [r.error_code for r in results] == [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
    assert state(moved, "t").partition_epoch == 1


def test_no_preferred_election_of_a_broker_that_leaves(moved: ClusterImage) -> None:
    rules = CLEAN._replace(shutting_down=frozenset({0}))
    topics = [ElectLeadersTopicPartitions("t", [0])]
    changes, response, _ = elect_leaders(moved, ElectLeadersRequest(PREFERRED, topics), rules)
    assert changes == []
    (result,) = response.replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_unknown_election_type() -> None:
    with pytest.raises(KafkaError) as caught:
        elect_leaders(image_of(0), ElectLeadersRequest(2, []), CLEAN)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


# --- balance


def test_balance() -> None:
    """R8: only above the limit, only who is in sync, nothing that moves."""
    image = image_of(0, 1)
    add_topic(image, "t", *[(0, 1)] * 4, *[(1, 0)] * 10)
    for number in range(4):
        set_state(image, "t", 1, (1, 0), partition=number)
    set_state(image, "t", 1, (1,), partition=1)
    set_assignment(image, "t", Assignment((0, 1, 2), adding=(2,)), partition=2)
    set_state(image, "t", 0, (1, 0), partition=4)
    assert imbalance(image) == {0: 1.0, 1: 0.1}
    assert balance_leaders(image, 100, CLEAN) == []
    apply(image, balance_leaders(image, 10, CLEAN))
    assert [r.leader for r in image.partitions_of("t")][:5] == [0, 1, 1, 0, 0]
    assert brief(state(image, "t", 0)) == (0, (1, 0), 1, 1)


def test_balance_leaves_brokers_alone_that_are_down_or_leave() -> None:
    image = image_of(1)
    add_topic(image, "t", (1, 0))
    set_assignment(image, "t", Assignment((0, 1)))
    assert imbalance(image) == {}
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    set_state(image, "t", 1, (1, 0))
    leaving = CLEAN._replace(shutting_down=frozenset({0}))
    assert balance_leaders(image, 10, leaving) == []


# --- elections during reassignments


def test_failure_of_a_broker_that_is_being_replaced() -> None:
    """R8: the reassignment continues, and ends when its last replica is in sync."""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1))
    moving = Assignment((2, 1, 0), adding=(2,), removing=(0,))
    set_assignment(image, "t", moving)
    apply(image, broker_down(image, [0], CLEAN))
    assert brief(state(image, "t")) == (1, (1,), 1, 1)
    assert assignment(image, "t") == moving


def test_unclean_election_that_ends_a_reassignment() -> None:
    image = image_of(0, 2)
    add_topic(image, "t", (0,))
    set_assignment(image, "t", Assignment((2, 0), adding=(2,), removing=(0,)))
    apply(image, broker_down(image, [0], images.UNCLEAN))
    assert brief(state(image, "t")) == (2, (2,), 1, 1)
    assert assignment(image, "t") == Assignment((2,))
