"""Plans for the replicas of partitions: the decisions of `penstock log move`, without I/O.

A proposal moves as little as possible: a replica stays on its broker if that is one of the chosen
brokers and does not have two more replicas than another.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

Assignment = Mapping[TopicPartition, Sequence[int]]
Racks = Mapping[int, str | None]


def propose(
    current: Assignment, racks: Racks, replication_factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns brokers out of `racks` for each partition, with replicas and leaders spread evenly.

    Replicas are put on different racks if there are enough. Without a replication factor each
    partition keeps its number of replicas. Raises KafkaError if there are too few brokers.
    """
    plan: dict[TopicPartition, list[int]] = {}
    load = Counter(dict.fromkeys(racks, 0))
    for partition, replicas in sorted(current.items()):
        count = replication_factor or len(replicas)
        if count > len(racks):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                (f"{partition} needs {count} brokers for its replicas, and {len(racks)} are named"),
                remedy=f"name more, or choose a replication factor of {max(1, len(racks))} or less",
            )
        plan[partition] = [broker for broker in replicas if broker in racks][:count]
        load.update(plan[partition])
    for partition, replicas in sorted(current.items()):
        planned = plan[partition]
        while len(planned) < (replication_factor or len(replicas)):
            used = Counter(_rack(racks, broker) for broker in planned)
            free = [broker for broker in racks if broker not in planned]
            chosen = min(
                free, key=lambda broker: (used[_rack(racks, broker)], load[broker], broker)
            )
            planned.append(chosen)
            load[chosen] += 1
    _balance_replicas(plan, racks, load)
    _balance_leaders(plan)
    return {partition: tuple(replicas) for partition, replicas in plan.items()}


def _rack(racks: Racks, broker: int) -> str:
    """Returns the rack of a broker; one without a rack counts as a rack of its own."""
    rack = racks[broker]
    return f"broker {broker}" if rack is None else f"rack {rack}"


def _balance_replicas(
    plan: dict[TopicPartition, list[int]], racks: Racks, load: "Counter[int]"
) -> None:
    """Moves replicas from a broker to one that has at least two fewer, as long as it can."""
    held: defaultdict[int, set[TopicPartition]] = defaultdict(set)
    for partition, replicas in plan.items():
        for broker in replicas:
            held[broker].add(partition)
    while move := _next_move(plan, racks, load, held):
        partition, source, target = move
        plan[partition][plan[partition].index(source)] = target
        held[source].remove(partition)
        held[target].add(partition)
        load[source] -= 1
        load[target] += 1


def _next_move(
    plan: Mapping[TopicPartition, Sequence[int]],
    racks: Racks,
    load: "Counter[int]",
    held: Mapping[int, set[TopicPartition]],
) -> tuple[TopicPartition, int, int] | None:
    by_load = sorted(racks, key=lambda broker: (load[broker], broker))
    for source in reversed(by_load):
        for target in by_load:
            if load[source] - load[target] < 2:
                break
            candidates = [
                partition
                for partition in held[source] - held[target]
                if keeps_racks(plan[partition], racks, source, target)
            ]
            if candidates:
                # Leaders are moved last, because their clients have to follow.
                first = min(
                    candidates, key=lambda partition: (-plan[partition].index(source), partition)
                )
                return first, source, target
    return None


def keeps_racks(replicas: Sequence[int], racks: Racks, source: int, target: int) -> bool:
    """Returns whether a partition has as many racks after a replica moves to the target."""
    before = {_rack(racks, broker) for broker in replicas}
    after = {_rack(racks, target if broker == source else broker) for broker in replicas}
    return len(after) >= len(before)


def _balance_leaders(plan: dict[TopicPartition, list[int]]) -> None:
    """Makes another replica the leader if its broker leads at least two partitions fewer."""
    leads = Counter(replicas[0] for replicas in plan.values())
    changed = True
    while changed:
        changed = False
        for replicas in plan.values():
            least = min(replicas, key=lambda broker: (leads[broker], replicas.index(broker)))
            if leads[replicas[0]] - leads[least] >= 2:
                leads[replicas[0]] -= 1
                leads[least] += 1
                replicas.remove(least)
                replicas.insert(0, least)
                changed = True


class Throttles(NamedTuple):
    """The settings of topics that limit the rate of a move, and the brokers that take part."""

    leaders: dict[str, str]
    """leader.replication.throttled.replicas by topic."""
    followers: dict[str, str]
    """follower.replication.throttled.replicas by topic."""
    brokers: tuple[int, ...]


def throttles(current: Assignment, target: Assignment) -> Throttles:
    """Returns the throttles of a move from all current replicas to the new ones."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for partition, replicas in sorted(target.items()):
        present = current.get(partition, ())
        added = [broker for broker in replicas if broker not in present]
        if not added:
            continue
        leaders.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in present
        )
        followers.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in added
        )
        brokers.update(present, replicas)
    return Throttles(_joined(leaders), _joined(followers), tuple(sorted(brokers)))


def _joined(lists: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {topic: ",".join(values) for topic, values in lists.items()}


def progress_of(
    current: Assignment, target: Assignment, moving: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """Returns the state of each partition: `complete`, `in progress`, `different` or `unknown`."""
    in_progress = set(moving)
    states: dict[TopicPartition, str] = {}
    for partition, replicas in sorted(target.items()):
        if partition in in_progress:
            states[partition] = "in progress"
        elif partition not in current:
            states[partition] = "unknown"
        elif tuple(current[partition]) == tuple(replicas):
            states[partition] = "complete"
        else:
            states[partition] = "different"
    return states
