"""Where replicas of new partitions go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.placement import (
    PlacementStart,
    check_assignment,
    interleave_racks,
    place_added_partitions,
    place_replicas,
)
from penstock.core.errors import ErrorCode, KafkaError
from tests.support.cluster.images import add_topic, image_of

RACKS = st.dictionaries(
    st.integers(0, 50), st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=9
)


def test_round_robin_from_the_start() -> None:
    """R1: leaders rotate; followers come after them, with a shift that grows each round."""
    assert place_replicas({0: None, 1: None, 2: None}, 6, 2, PlacementStart(1, 0)) == [
        (1, 2),
        (2, 0),
        (0, 1),
        (1, 0),
        (2, 1),
        (0, 2),
    ]


def test_one_broker() -> None:
    assert place_replicas({5: "a"}, 3, 1, PlacementStart(9, 4)) == [(5,), (5,), (5,)]


def test_racks_alternate_in_the_row() -> None:
    assert interleave_racks({0: "a", 1: "a", 2: "b", 3: None, 4: "b"}) == [3, 0, 2, 1, 4]


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    """R1: a rack that fails takes one replica with it."""
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    for replicas in place_replicas(racks, 60, 3, PlacementStart(2, 1)):
        assert {racks[r] for r in replicas} == {"a", "b", "c"}


@given(RACKS, st.integers(1, 40), st.integers(0, 99), st.integers(0, 99), st.data())
def test_any_cluster(
    racks: dict[int, str | None], partitions: int, first: int, shift: int, data: st.DataObject
) -> None:
    """R1: replicas on different brokers, spread over racks as evenly as they can; leaders even."""
    factor = data.draw(st.integers(1, len(racks)))
    placed = place_replicas(racks, partitions, factor, PlacementStart(first, shift))
    assert len(placed) == partitions
    size = Counter(rack or "" for rack in racks.values())
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
        used = Counter(racks[r] or "" for r in replicas)
        most = max(used.values())
        for rack in size:
            assert used[rack] >= min(size[rack], most - 1)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker] for broker in racks]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(("brokers", "factor"), [(3, 2), (4, 3), (5, 2)])
def test_replicas_are_even_over_full_rounds(brokers: int, factor: int) -> None:
    """R1: after all shifts every pair of brokers shares the same number of partitions."""
    rounds = brokers * (brokers - 1)
    placed = place_replicas(dict.fromkeys(range(brokers)), rounds, factor, PlacementStart(0, 0))
    followers = Counter((r[0], follower) for r in placed for follower in r[1:])
    assert set(followers.values()) == {factor - 1}


def test_brokers_of_other_racks_are_followers_equally_often() -> None:
    """R1: when a broker fails, its load falls on all others and not on one."""
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    placed = place_replicas(racks, 12, 3, PlacementStart(0, 0))
    followers = Counter((r[0], follower) for r in placed for follower in r[1:])
    assert set(followers.values()) == {1}
    assert len(followers) == 24


def test_more_replicas_than_brokers() -> None:
    """E1: says how many are up and what to do."""
    with pytest.raises(KafkaError) as caught:
        place_replicas({0: None}, 1, 3, PlacementStart(0, 0))
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "the 1 broker that is up" in caught.value.message
    assert "replication factor of 1 or less" in caught.value.message


@pytest.mark.parametrize("factor", [0, -2])
def test_factor_below_one(factor: int) -> None:
    with pytest.raises(KafkaError) as caught:
        place_replicas({0: None}, 1, factor, PlacementStart(0, 0))
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_added_partitions_continue_the_placement() -> None:
    image = image_of(0, 1, 2)
    add_topic(image, "t", (1, 2), (2, 0))
    assert place_added_partitions(image, "t", 2, PlacementStart(77, 0)) == [(0, 1), (1, 0)]


def test_added_partitions_if_the_first_leader_is_down() -> None:
    image = image_of(0, 1, 2)
    add_topic(image, "t", (9, 2), (2, 0))
    assert place_added_partitions(image, "t", 1, PlacementStart(0, 0)) == [(2, 0)]


@pytest.mark.parametrize(
    ("replicas", "expected_error"),
    [([], "empty"), ([1, 1], "twice"), ([0, 8], "not up"), ([0], "have 2")],
)
def test_invalid_assignments(replicas: list[int], expected_error: str) -> None:
    with pytest.raises(KafkaError, match=expected_error) as caught:
        check_assignment(image_of(0, 1), replicas, 2)
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_assignment_may_keep_a_broker_that_is_down() -> None:
    check_assignment(image_of(0), [0, 8], staying=(8,))
    with pytest.raises(KafkaError, match="not up"):
        check_assignment(image_of(0), [0, 8], staying=(7,))
