"""Replica placement: the brokers that get the replicas of new partitions (R1).

The live brokers are put in an order in which racks alternate. The first replica of each partition
goes to the next broker in that order. The other replicas follow after a shift that grows by one
each time all brokers have been used, so that two brokers do not share all their partitions. Brokers
whose rack has the fewest replicas of the partition are preferred.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import NamedTuple

from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode, KafkaError


class PlacementStart(NamedTuple):
    """The random start of a placement, chosen by the host."""

    broker_index: int
    """The position of the first partition's leader in the order of brokers."""
    replica_shift: int
    """The distance from a partition's leader to its next replica."""


def interleave_racks(racks: Mapping[int, str | None]) -> list[int]:
    """Returns the brokers with alternating racks; those without a rack count as one rack."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for group in rounds for broker in group if broker is not None]


def place_replicas(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    start: PlacementStart,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Returns the replicas of `partitions` partitions from `first_partition` on, leaders first.

    `racks` has the live brokers. Raises INVALID_REPLICATION_FACTOR if there are too few (E1).
    """
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is not possible",
            remedy="use at least 1, or -1 for the default of the broker",
        )
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the {len(racks)} "
            f"{'broker that is' if len(racks) == 1 else 'brokers that are'} up",
            remedy=(
                f"start more brokers, or use a replication factor of {max(len(racks), 1)} or less"
            ),
        )
    order = interleave_racks(racks)
    stride = len({rack or "" for rack in racks.values()})
    placements: list[tuple[int, ...]] = []
    for partition in range(first_partition, first_partition + partitions):
        leader_index = (start.broker_index + partition) % len(order)
        shift = (start.replica_shift + partition // len(order)) * stride
        placements.append(_replicas(order, racks, leader_index, shift, replication_factor))
    return placements


def place_added_partitions(
    image: ClusterImage, topic: str, partitions: int, start: PlacementStart
) -> list[tuple[int, ...]]:
    """Returns the replicas of added partitions, continuing the placement of the existing ones."""
    assignments = image.topics[topic].assignments
    replicas = assignments[0].replicas
    racks = racks_of(image)
    if replicas[0] in racks:
        broker_index = interleave_racks(racks).index(replicas[0])
        start = PlacementStart(broker_index, start.replica_shift)
    return place_replicas(racks, partitions, len(replicas), start, first_partition=len(assignments))


def racks_of(image: ClusterImage) -> dict[int, str | None]:
    """Returns the live brokers, each with its rack."""
    return {broker_id: broker.rack for broker_id, broker in image.brokers.items()}


def _replicas(
    order: list[int], racks: Mapping[int, str | None], leader_index: int, shift: int, count: int
) -> tuple[int, ...]:
    size = len(order)
    candidates = [
        order[(leader_index + 1 + (shift + distance) % (size - 1)) % size]
        for distance in range(size - 1)
    ]
    replicas = [order[leader_index]]
    replicas_by_rack = Counter([racks[replicas[0]] or ""])
    while len(replicas) < count:
        broker = min(candidates, key=lambda broker: replicas_by_rack[racks[broker] or ""])
        candidates.remove(broker)
        replicas.append(broker)
        replicas_by_rack[racks[broker] or ""] += 1
    return tuple(replicas)


def check_assignment(
    image: ClusterImage,
    replicas: list[int],
    replication_factor: int | None = None,
    staying: Collection[int] = (),
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for an empty list, a duplicate, or a broker that is down.

    A broker in `staying` has the partition already and may be down.
    """
    if not replicas:
        problem = "the list of replicas is empty: a partition needs at least one"
    elif len(set(replicas)) < len(replicas):
        problem = f"the replicas {replicas} name a broker twice: use a different broker for each"
    elif unknown := sorted(set(replicas) - set(image.brokers) - set(staying)):
        problem = (
            f"the replicas {replicas} name brokers that are not up, {unknown}: "
            f"use some of {sorted(image.brokers)}"
        )
    elif replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"the partition has {len(replicas)} replicas, {replicas}, but the other partitions of "
            f"the topic have {replication_factor}: give all partitions the same number"
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
