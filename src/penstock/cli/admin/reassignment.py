"""Where the copies of partitions shall be: decisions of `penstock log move`, without I/O.

A proposal moves as little as it can: copies stay where they are as long as their broker is among
the wanted ones and does not have two more than another.
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
    """Brokers for each partition out of `racks`, with copies and leaders spread evenly.

    Copies go to different racks where there are enough. Without a replication factor each
    partition keeps as many copies as it has.
    """
    plan: dict[TopicPartition, list[int]] = {}
    load = Counter(dict.fromkeys(racks, 0))
    for partition, replicas in sorted(current.items()):
        wanted = replication_factor or len(replicas)
        if wanted > len(racks):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{partition} needs {wanted} brokers for its copies, and {len(racks)} are named: "
                f"name more, or ask for a replication factor of {max(1, len(racks))} or less",
            )
        plan[partition] = [broker for broker in replicas if broker in racks][:wanted]
        load.update(plan[partition])
    for partition, replicas in sorted(current.items()):
        kept = plan[partition]
        while len(kept) < (replication_factor or len(replicas)):
            used = Counter(_rack(racks, broker) for broker in kept)
            free = [broker for broker in racks if broker not in kept]
            chosen = min(free, key=lambda each: (used[_rack(racks, each)], load[each], each))
            kept.append(chosen)
            load[chosen] += 1
    _level_copies(plan, racks, load)
    _level_leaders(plan)
    return {partition: tuple(replicas) for partition, replicas in plan.items()}


def _rack(racks: Racks, broker: int) -> str:
    """A broker without a rack stands alone."""
    rack = racks[broker]
    return f"broker {broker}" if rack is None else f"rack {rack}"


def _level_copies(
    plan: dict[TopicPartition, list[int]], racks: Racks, load: "Counter[int]"
) -> None:
    """Copies go from a broker to one that has at least two fewer, until there is none to move."""
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
            fitting = [
                partition
                for partition in held[source] - held[target]
                if _spread(plan[partition], racks, source, target)
            ]
            if fitting:
                # A copy that leads is moved last: its clients would have to follow.
                first = min(fitting, key=lambda each: (-plan[each].index(source), each))
                return first, source, target
    return None


def _spread(replicas: Sequence[int], racks: Racks, source: int, target: int) -> bool:
    """Whether a partition stays in as many racks when a copy goes from source to target."""
    before = {_rack(racks, broker) for broker in replicas}
    after = {_rack(racks, target if broker == source else broker) for broker in replicas}
    return len(after) >= len(before)


def _level_leaders(plan: dict[TopicPartition, list[int]]) -> None:
    """Another copy leads where its broker leads at least two partitions fewer."""
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
    """Settings that slow a move down: values of topics, and the brokers that take part."""

    leaders: dict[str, str]
    """leader.replication.throttled.replicas by topic."""
    followers: dict[str, str]
    """follower.replication.throttled.replicas by topic."""
    brokers: tuple[int, ...]


def throttles(current: Assignment, target: Assignment) -> Throttles:
    """What is copied by a move: from all present copies, to those that come."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for partition, wanted in sorted(target.items()):
        present = current.get(partition, ())
        coming = [broker for broker in wanted if broker not in present]
        if not coming:
            continue
        leaders.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in present
        )
        followers.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in coming
        )
        brokers.update(present, wanted)
    return Throttles(_joined(leaders), _joined(followers), tuple(sorted(brokers)))


def _joined(lists: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {topic: ",".join(words) for topic, words in lists.items()}


def progress_of(
    current: Assignment, target: Assignment, moving: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """How far each partition is: `complete`, `in progress`, `different` or `unknown`."""
    under_way = set(moving)
    result: dict[TopicPartition, str] = {}
    for partition, wanted in sorted(target.items()):
        if partition in under_way:
            result[partition] = "in progress"
        elif partition not in current:
            result[partition] = "unknown"
        elif tuple(current[partition]) == tuple(wanted):
            result[partition] = "complete"
        else:
            result[partition] = "different"
    return result
