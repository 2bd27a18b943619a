"""Plans of `penstock cluster rebalance` (R8)."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.admin.rebalance_plan import (
    MIN_WEIGHT,
    ClusterLoad,
    RebalancePlan,
    loads_by_broker,
    plan_rebalance,
)
from penstock.core.ids import TopicPartition

GIB = 1 << 30


def at(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def load_of(
    *replicas: tuple[int, ...],
    sizes: Mapping[int, int] | None = None,
    racks: Mapping[int, str | None] | None = None,
    brokers: int = 3,
) -> ClusterLoad:
    assignment = {at(number): item for number, item in enumerate(replicas)}
    return ClusterLoad(
        assignment,
        {partition: item[0] for partition, item in assignment.items()},
        {at(number): size for number, size in (sizes or {}).items()},
        racks if racks is not None else dict.fromkeys(range(1, brokers + 1)),
        {},
    )


def executed(load: ClusterLoad, plan: RebalancePlan) -> ClusterLoad:
    """Returns the cluster after the plan."""
    changes = {**plan.reorders, **plan.moves}
    assignment = {
        partition: changes[partition].after if partition in changes else replicas
        for partition, replicas in load.assignment.items()
    }
    leaders = {
        partition: assignment[partition][0] if partition in plan.elections else leader
        for partition, leader in load.leaders.items()
    }
    log_dirs = {
        broker: {
            directory: {partition for partition in held if broker in assignment[partition]}
            for directory, held in directories.items()
        }
        for broker, directories in load.log_dirs.items()
    }
    for move in plan.log_dirs:
        for directory, held in log_dirs[move.broker].items():
            held.discard(move.partition)
            if directory == move.after:
                held.add(move.partition)
    return load._replace(assignment=assignment, leaders=leaders, log_dirs=log_dirs)


def test_a_balanced_cluster_stays() -> None:
    assert plan_rebalance(load_of((1, 2), (2, 3), (3, 1))).is_empty


def test_leaders_are_spread_without_copying() -> None:
    plan = plan_rebalance(load_of(*[(1, 2, 3)] * 6))
    assert not plan.moves
    assert plan.size == 0
    assert len(plan.reorders) == 4
    after = executed(load_of(*[(1, 2, 3)] * 6), plan)
    assert Counter(after.leaders.values()) == {1: 2, 2: 2, 3: 2}


def test_preferred_leaders_that_do_not_lead_are_elected() -> None:
    load = load_of((1, 2), (2, 3), (3, 1))._replace(leaders={at(0): 2, at(1): 2, at(2): 3})
    assert plan_rebalance(load) == RebalancePlan({}, {}, [], [at(0)])


def test_a_new_broker_gets_its_share() -> None:
    load = load_of(*[(1, 2), (2, 1)] * 3, sizes=dict.fromkeys(range(6), GIB))
    plan = plan_rebalance(load)
    after = executed(load, plan)
    assert loads_by_broker(after.assignment, after) == {1: 4 * GIB, 2: 4 * GIB, 3: 4 * GIB}
    assert plan.size == 4 * GIB, "not more than the new broker gets"
    assert Counter(after.leaders.values()) == {1: 2, 2: 2, 3: 2}


def test_a_replica_that_would_only_swap_the_roles_stays() -> None:
    assert not plan_rebalance(load_of((1,), sizes={0: GIB}, brokers=2)).moves


def test_replicas_of_a_partition_stay_in_their_racks() -> None:
    """Broker 4 shares the rack of 2: a replica with another one in rack a may go there."""
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    load = load_of(*[(1, 2)] * 4, sizes=dict.fromkeys(range(4), GIB), racks=racks)
    after = executed(load, plan_rebalance(load))
    for replicas in after.assignment.values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}
    assert set(loads_by_broker(after.assignment, after).values()) == {2 * GIB}


def test_log_directories_are_evened_out() -> None:
    partitions = [at(number) for number in range(4)]
    load = load_of(*[(1,)] * 4, sizes=dict.fromkeys(range(4), GIB), brokers=1)
    load = load._replace(log_dirs={1: {"/a": partitions, "/b": []}})
    plan = plan_rebalance(load)
    assert [(move.before, move.after, move.size) for move in plan.log_dirs] == [
        ("/a", "/b", GIB)
    ] * 2
    assert plan_rebalance(executed(load, plan)).is_empty


def test_partitions_out_of_sync_count_but_stay() -> None:
    load = load_of(*[(1, 2)] * 4, sizes=dict.fromkeys(range(4), GIB))
    assert plan_rebalance(load._replace(fixed=load.assignment)).is_empty


def test_only_leaders() -> None:
    load = load_of(*[(1, 2)] * 4, sizes=dict.fromkeys(range(4), GIB))
    plan = plan_rebalance(load, moves_replicas=False)
    assert not plan.moves
    assert len(plan.reorders) == 2


@st.composite
def clusters(draw: st.DrawFn) -> ClusterLoad:
    brokers = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6, unique=True))
    racks = {broker: draw(st.sampled_from([None, "a", "b", "c"])) for broker in brokers}
    count = draw(st.integers(0, 14))
    assignment: dict[TopicPartition, tuple[int, ...]] = {}
    for number in range(count):
        size = draw(st.integers(1, min(3, len(brokers))))
        assignment[at(number)] = tuple(draw(st.permutations(brokers))[:size])
    sizes = {partition: draw(st.integers(0, 40)) * MIN_WEIGHT // 2 for partition in assignment}
    leaders = {
        partition: draw(st.sampled_from([None, *replicas]))
        for partition, replicas in assignment.items()
    }
    log_dirs: dict[int, dict[str, set[TopicPartition]]] = {}
    for broker in brokers:
        names = draw(st.sampled_from([["/x"], ["/x", "/y"], ["/x", "/y", "/z"]]))
        directories: dict[str, set[TopicPartition]] = {name: set() for name in names}
        for partition, replicas in assignment.items():
            if broker in replicas:
                directories[draw(st.sampled_from(names))].add(partition)
        log_dirs[broker] = directories
    fixed = [partition for partition in assignment if draw(st.integers(0, 5)) == 0]
    return ClusterLoad(assignment, leaders, sizes, racks, log_dirs, fixed)


def rack_count(replicas: tuple[int, ...], racks: Mapping[int, str | None]) -> int:
    return len({racks[broker] or f"broker {broker}" for broker in replicas})


@given(clusters())
def test_no_plan_loses_a_replica_or_a_rack(load: ClusterLoad) -> None:
    plan = plan_rebalance(load)
    assert not set(plan.reorders) & set(plan.moves)
    for partition, move in {**plan.reorders, **plan.moves}.items():
        assert partition not in load.fixed
        assert move.before == load.assignment[partition]
        assert len(set(move.after)) == len(move.after) == len(move.before)
        assert set(move.after) <= set(load.racks)
        assert rack_count(move.after, load.racks) >= rack_count(move.before, load.racks)
    for log_dir_move in plan.log_dirs:
        assert log_dir_move.after in load.log_dirs[log_dir_move.broker]


@given(clusters())
def test_a_plan_moves_not_more_than_what_is_uneven(load: ClusterLoad) -> None:
    """At most what the fullest brokers have above the average, and one replica per broker."""
    plan = plan_rebalance(load)
    before = loads_by_broker(load.assignment, load)
    after_load = executed(load, plan)
    after = loads_by_broker(after_load.assignment, after_load)
    assert max(after.values()) <= max(before.values())
    assert min(after.values()) >= min(before.values())
    moved = sum(
        load.weight(partition) * len(set(move.after) - set(move.before))
        for partition, move in plan.moves.items()
    )
    mean = sum(before.values()) / len(before)
    excess = sum(max(0, weight - mean) for weight in before.values())
    largest = max(map(load.weight, load.assignment), default=0)
    assert moved <= excess + largest * len(before)
    leads_before = Counter(replicas[0] for replicas in load.assignment.values())
    leads_after = Counter(replicas[0] for replicas in after_load.assignment.values())
    if not plan.moves:
        assert max(leads_after.values(), default=0) <= max(leads_before.values(), default=0)


@given(clusters())
def test_an_executed_plan_leaves_nothing_to_do(load: ClusterLoad) -> None:
    assert plan_rebalance(executed(load, plan_rebalance(load))).is_empty
