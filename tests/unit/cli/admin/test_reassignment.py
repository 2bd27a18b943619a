"""Plans for the replicas of partitions (R1, R8)."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.admin.reassignment import Throttles, progress_of, propose, throttles
from penstock.cli.admin.reassignment_steps import throttle_changes
from penstock.client.admin import (
    ConfigOp,
    ConfigResource,
    ConfigResourceType,
    TopicPartitionReplica,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition


def at(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def test_nothing_moves_without_need() -> None:
    current = {at(0): (0, 1), at(1): (1, 2), at(2): (2, 0)}
    assert propose(current, dict.fromkeys(range(3))) == current


def test_a_broker_is_emptied_with_as_few_moves_as_it_has_copies() -> None:
    current = {at(0): (0, 1), at(1): (1, 2), at(2): (2, 0), at(3): (0, 1)}
    proposed = propose(current, {1: None, 2: None, 3: None})
    for partition, replicas in proposed.items():
        assert 0 not in replicas
        remaining = [broker for broker in current[partition] if broker != 0]
        assert set(remaining) <= set(replicas)


def test_a_new_broker_gets_its_share() -> None:
    current = {at(number): (number % 2,) for number in range(6)}
    proposed = propose(current, dict.fromkeys(range(3)))
    assert Counter(replicas[0] for replicas in proposed.values()) == {0: 2, 1: 2, 2: 2}
    assert sum(proposed[partition] != current[partition] for partition in current) == 2


def test_leaders_are_spread_without_moving_copies() -> None:
    current = {at(number): (0, 1) for number in range(4)}
    proposed = propose(current, {0: None, 1: None})
    assert Counter(replicas[0] for replicas in proposed.values()) == {0: 2, 1: 2}


def test_more_and_fewer_copies() -> None:
    current = {at(0): (0,), at(1): (1,)}
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    for replicas in propose(current, racks, 2).values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}
    assert {len(item) for item in propose({at(0): (0, 1, 2)}, racks, 1).values()} == {1}


def test_too_few_brokers() -> None:
    """E1: it says how many there are, and what to do."""
    with pytest.raises(
        KafkaError, match="needs 2 brokers for its replicas, and 1 are named"
    ) as error:
        propose({at(0): (0, 1)}, {0: None})
    assert error.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@st.composite
def clusters(
    draw: st.DrawFn,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int]:
    old = draw(st.integers(1, 6))
    new = draw(st.lists(st.integers(0, 8), unique=True, min_size=1, max_size=7))
    replica_count = draw(st.integers(1, min(old, len(new), 3)))
    racks: dict[int, str | None] = {
        broker: draw(st.sampled_from([None, "a", "b", "c"])) for broker in new
    }
    some = st.permutations(range(old)).map(lambda row: tuple(row[:replica_count]))
    replicas = draw(st.lists(some, min_size=1, max_size=20))
    return {at(number): replica for number, replica in enumerate(replicas)}, racks, replica_count


@given(clusters())
def test_a_proposal_is_sound(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int],
) -> None:
    """R1: every replica on a broker of its own, evenly, in as many racks as there can be."""
    current, racks, replica_count = cluster
    proposed = propose(current, racks)
    assert set(proposed) == set(current)
    for replicas in proposed.values():
        assert len(set(replicas)) == len(replicas) == replica_count
        assert set(replicas) <= set(racks)
    if all(rack is None for rack in racks.values()):
        load = Counter(broker for replicas in proposed.values() for broker in replicas)
        counts = [load[broker] for broker in racks]
        assert max(counts) - min(counts) <= 1
    assert propose(proposed, racks) == proposed


def test_throttles_name_those_that_copy() -> None:
    current = {at(0): (0, 1), at(1): (1, 2), at(0, "u"): (5,)}
    target = {at(0): (0, 3), at(1): (2, 1), at(0, "u"): (6, 5)}
    assert throttles(current, target) == Throttles(
        {"t": "0:0,0:1", "u": "0:5"}, {"t": "0:3", "u": "0:6"}, (0, 1, 3, 5, 6)
    )


def test_progress() -> None:
    current = {at(0): (0,), at(1): (1,), at(2): (2,)}
    target = {at(0): (0,), at(1): (2,), at(2): (0,), at(9): (0,)}
    assert progress_of(current, target, [at(2)]) == {
        at(0): "complete",
        at(1): "different",
        at(2): "in progress",
        at(9): "unknown",
    }


def test_settings_that_slow_a_move_down() -> None:
    throttled = throttles({at(0): (0,)}, {at(0): (1,)})
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    brokers = [ConfigResource(ConfigResourceType.BROKER, name) for name in "01"]
    rates = [
        ConfigOp("leader.replication.throttled.rate", "9"),
        ConfigOp("follower.replication.throttled.rate", "9"),
    ]
    directory = ConfigOp("replica.alter.log.dirs.io.max.bytes.per.second", "7")
    assert throttle_changes(throttled, 9, [TopicPartitionReplica("t", 0, 1)], 7) == {
        topic: [
            ConfigOp("leader.replication.throttled.replicas", "0:0"),
            ConfigOp("follower.replication.throttled.replicas", "0:1"),
        ],
        brokers[0]: rates,
        brokers[1]: [*rates, directory],
    }
    assert throttle_changes(throttled, None, [], 7) == {}
