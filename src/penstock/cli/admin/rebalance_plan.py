"""The plan of `penstock cluster rebalance`: leaders and disks evened out with few moves. No I/O.

Replicas move from the broker with the most bytes to the one with the fewest, until no broker is
further from the average than the tolerance, or no move makes it better. Then the preferred leaders
are spread. A plan that was executed leaves nothing to do for the next one.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from penstock.cli.admin.reassignment import Racks, keeps_racks
from penstock.core.ids import TopicPartition

MIN_WEIGHT: Final = 1 << 20
"""What a replica counts at least: even an empty one takes part in requests and recovery."""

K = TypeVar("K", bound=Hashable)


class ClusterLoad(NamedTuple):
    """The cluster as it is now."""

    assignment: Mapping[TopicPartition, tuple[int, ...]]
    leaders: Mapping[TopicPartition, int | None]
    sizes: Mapping[TopicPartition, int]
    """The bytes of one replica; 0 if a partition is missing."""
    racks: Racks
    """The racks of the brokers that are up, by their ids."""
    log_dirs: Mapping[int, Mapping[str, Collection[TopicPartition]]]
    """The partitions in each log directory that is online, by broker."""
    fixed: Collection[TopicPartition] = ()
    """Partitions that count, but do not move: some of their replicas are not in sync."""

    def weight(self, partition: TopicPartition) -> int:
        return max(MIN_WEIGHT, self.sizes.get(partition, 0))


class Move(NamedTuple):
    """A change of the replicas of a partition."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int
    """The bytes that are copied."""


class LogDirMove(NamedTuple):
    """A replica in another log directory of its broker."""

    partition: TopicPartition
    broker: int
    before: str | None
    """None if the broker gets the replica with this plan."""
    after: str
    size: int


class RebalancePlan(NamedTuple):
    """What to do, in this order."""

    reorders: dict[TopicPartition, Move]
    """Another preferred leader among the same replicas: nothing is copied."""
    moves: dict[TopicPartition, Move]
    """Replicas on other brokers."""
    log_dirs: list[LogDirMove]
    elections: list[TopicPartition]
    """Partitions that another broker than their preferred leader leads, at first or then."""

    @property
    def is_empty(self) -> bool:
        return not (self.reorders or self.moves or self.log_dirs or self.elections)

    @property
    def size(self) -> int:
        """The bytes that are copied."""
        moved = sum(move.size for move in self.moves.values())
        return moved + sum(move.size for move in self.log_dirs if move.before is not None)


def plan_rebalance(
    load: ClusterLoad, *, tolerance: float = 0.1, moves_replicas: bool = True
) -> RebalancePlan:
    """Returns the plan; without `moves_replicas` it only spreads leaders."""
    final = {partition: list(replicas) for partition, replicas in load.assignment.items()}
    log_dirs: list[LogDirMove] = []
    if moves_replicas:
        _even_out_brokers(final, load, tolerance)
        log_dirs = _even_out_log_dirs(final, load, tolerance)
    _spread_leaders(final, load)
    reorders: dict[TopicPartition, Move] = {}
    moves: dict[TopicPartition, Move] = {}
    for partition, replicas in sorted(final.items()):
        before = load.assignment[partition]
        after = tuple(replicas)
        added = len(set(after) - set(before))
        if added:
            moves[partition] = Move(before, after, added * load.sizes.get(partition, 0))
        elif after != before:
            reorders[partition] = Move(before, after, 0)
    elections = [
        partition
        for partition, replicas in sorted(final.items())
        if replicas
        and partition not in load.fixed
        and replicas[0] in load.racks
        and load.leaders.get(partition) != replicas[0]
    ]
    return RebalancePlan(reorders, moves, log_dirs, elections)


def loads_by_broker(
    assignment: Mapping[TopicPartition, Iterable[int]], load: ClusterLoad
) -> dict[int, int]:
    """Returns the weight of the replicas on each broker that is up."""
    loads = dict.fromkeys(load.racks, 0)
    for partition, replicas in assignment.items():
        for broker in replicas:
            if broker in loads:
                loads[broker] += load.weight(partition)
    return loads


def _even_out_brokers(
    final: dict[TopicPartition, list[int]], load: ClusterLoad, tolerance: float
) -> None:
    held: dict[int, set[TopicPartition]] = {broker: set() for broker in load.racks}
    for partition, replicas in final.items():
        for broker in replicas:
            if broker in held:
                held[broker].add(partition)
    loads = loads_by_broker(final, load)
    fixed = set(load.fixed)

    def movable(source: int, target: int) -> list[tuple[int, bool, TopicPartition]]:
        return [
            (load.weight(partition), final[partition][0] == source, partition)
            for partition in held[source] - held[target] - fixed
            if keeps_racks(final[partition], load.racks, source, target)
        ]

    while True:
        for source, target in _pairs(loads, tolerance):
            choice = _choose(movable(source, target), loads, source, target)
            if choice is not None:
                break
        else:
            return
        final[choice][final[choice].index(source)] = target
        held[source].remove(choice)
        held[target].add(choice)
        loads[source] -= load.weight(choice)
        loads[target] += load.weight(choice)


def _even_out_log_dirs(
    final: Mapping[TopicPartition, Collection[int]], load: ClusterLoad, tolerance: float
) -> list[LogDirMove]:
    """Chooses directories of new replicas, and moves others between directories of a broker."""
    moves = []
    for broker, directories in sorted(load.log_dirs.items()):
        before = {
            partition: directory for directory, held in directories.items() for partition in held
        }
        after = {
            partition: directory
            for partition, directory in before.items()
            if broker in final.get(partition, ())
        }
        if len(directories) > 1:
            _place(after, broker, final, load, tolerance)
        moves += [
            LogDirMove(
                partition,
                broker,
                before.get(partition),
                directory,
                load.sizes.get(partition, 0),
            )
            for partition, directory in sorted(after.items())
            if before.get(partition) != directory
        ]
    return moves


def _place(
    places: dict[TopicPartition, str],
    broker: int,
    final: Mapping[TopicPartition, Collection[int]],
    load: ClusterLoad,
    tolerance: float,
) -> None:
    """Places new replicas in the directories of a broker, and evens these out."""
    loads = dict.fromkeys(load.log_dirs[broker], 0)
    for partition, directory in places.items():
        loads[directory] += load.weight(partition)
    arriving = [
        partition
        for partition, replicas in final.items()
        if broker in replicas and broker not in load.assignment[partition]
    ]
    for partition in sorted(arriving, key=lambda partition: (-load.weight(partition), partition)):
        places[partition] = min(loads, key=lambda directory: (loads[directory], directory))
        loads[places[partition]] += load.weight(partition)

    def movable(source: str) -> list[tuple[int, bool, TopicPartition]]:
        return [
            (load.weight(partition), False, partition)
            for partition, directory in places.items()
            if directory == source and partition not in load.fixed
        ]

    while True:
        for source, target in _pairs(loads, tolerance):
            choice = _choose(movable(source), loads, source, target)
            if choice is not None:
                break
        else:
            return
        places[choice] = target
        loads[source] -= load.weight(choice)
        loads[target] += load.weight(choice)


def _pairs(loads: Mapping[K, int], tolerance: float) -> list[tuple[K, K]]:
    """Returns sources and targets of moves, the widest gap first.

    One of the two is further from the average than the tolerance.
    """
    if not loads:
        return []
    mean = sum(loads.values()) / len(loads)
    low, high = mean * (1 - tolerance), mean * (1 + tolerance)
    ordered = sorted(loads, key=lambda key: (loads[key], str(key)))
    return [
        (source, target)
        for source in reversed(ordered)
        for target in ordered
        if loads[source] > loads[target] and (loads[source] > high or loads[target] < low)
    ]


def _choose(
    movable: Collection[tuple[int, bool, TopicPartition]],
    loads: Mapping[K, int],
    source: K,
    target: K,
) -> TopicPartition | None:
    """Returns the replica to move; None if no move narrows the gap without reversing it.

    The largest that leaves both on their sides of the average, so that nothing is moved back
    later; without such a one, the smallest. Leaders are moved last.
    """
    mean = sum(loads.values()) / len(loads)
    gap = loads[source] - loads[target]
    room = min(loads[source] - mean, mean - loads[target])
    choices = [choice for choice in movable if 2 * choice[0] <= gap]
    fitting = [choice for choice in choices if choice[0] <= room]
    if fitting:
        return min(fitting, key=lambda choice: (-choice[0], *choice[1:]))[2]
    return min(choices)[2] if choices else None


def _spread_leaders(final: dict[TopicPartition, list[int]], load: ClusterLoad) -> None:
    """Makes another replica the preferred leader if its broker leads at least two fewer."""
    leads = Counter(replicas[0] for replicas in final.values() if replicas)
    has_changed = True
    while has_changed:
        has_changed = False
        for partition, replicas in sorted(final.items()):
            candidates = [broker for broker in replicas if broker in load.racks]
            if partition in load.fixed or not candidates:
                continue
            least = min(candidates, key=lambda broker: (leads[broker], replicas.index(broker)))
            if leads[replicas[0]] - leads[least] >= 2:
                leads[replicas[0]] -= 1
                leads[least] += 1
                replicas.remove(least)
                replicas.insert(0, least)
                has_changed = True
