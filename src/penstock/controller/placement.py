"""Where the replicas of new partitions go (R1).

Brokers stand in a row in which racks alternate. The first replica of a partition is the broker
after that of the partition before. The others follow in the row after a gap that widens by one
each time the row has been used up, so that two brokers do not share all their partitions; a broker
whose rack has the fewest replicas of the partition goes first.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import NamedTuple

from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode, KafkaError


class PlacementStart(NamedTuple):
    """Where to begin in the row of brokers, and with which gap: chance, given by the host."""

    first: int
    shift: int


def interleave_racks(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, one of each rack in turn. Brokers without a rack share one of their own."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


def place_replicas(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    start: PlacementStart,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """The replicas of `partitions` partitions from number `first_partition`, leaders first.

    `racks` has the brokers that are up. Raises INVALID_REPLICATION_FACTOR where they are too few
    (E1).
    """
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} is not possible: it must be at least 1, "
            "or -1 for the default of the broker.",
        )
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} needs as many brokers, but only "
            f"{len(racks)} {'is' if len(racks) == 1 else 'are'} up. "
            f"Start more brokers, or ask for a replication factor of {max(len(racks), 1)} or less.",
        )
    row = interleave_racks(racks)
    stride = len({rack or "" for rack in racks.values()})
    placed: list[tuple[int, ...]] = []
    for partition in range(first_partition, first_partition + partitions):
        first = (start.first + partition) % len(row)
        shift = start.shift + partition // len(row)
        placed.append(_replicas(row, racks, first, shift * stride, replication_factor))
    return placed


def place_added_partitions(
    image: ClusterImage, topic: str, partitions: int, start: PlacementStart
) -> list[tuple[int, ...]]:
    """The replicas of partitions that are added: the round goes on that the topic began."""
    assignments = image.topics[topic].assignments
    first = assignments[0].replicas
    racks = racks_of(image)
    row = interleave_racks(racks)
    if first[0] in racks:
        start = PlacementStart(row.index(first[0]), start.shift)
    return place_replicas(racks, partitions, len(first), start, first_partition=len(assignments))


def racks_of(image: ClusterImage) -> dict[int, str | None]:
    """The brokers that are up, each with its rack."""
    return {broker_id: broker.rack for broker_id, broker in image.brokers.items()}


def _replicas(
    row: list[int], racks: Mapping[int, str | None], first: int, shift: int, count: int
) -> tuple[int, ...]:
    others = len(row) - 1
    waiting = [row[(first + 1 + (shift + turn) % others) % len(row)] for turn in range(others)]
    chosen = [row[first]]
    used = Counter([racks[row[first]] or ""])
    while len(chosen) < count:
        broker = min(waiting, key=lambda broker: used[racks[broker] or ""])
        waiting.remove(broker)
        chosen.append(broker)
        used[racks[broker] or ""] += 1
    return tuple(chosen)


def check_assignment(
    image: ClusterImage,
    replicas: list[int],
    replication_factor: int | None = None,
    staying: Collection[int] = (),
) -> None:
    """Refuses replicas a user named that cannot be: none, one twice, brokers that are not up.

    A broker among `staying` holds the partition already, and may be down.
    """
    if not replicas:
        problem = "A partition needs at least one replica, and the list is empty."
    elif len(set(replicas)) < len(replicas):
        problem = f"The replicas {replicas} name a broker twice: each copy needs its own broker."
    elif unknown := sorted(set(replicas) - set(image.brokers) - set(staying)):
        problem = (
            f"The replicas {replicas} name brokers that are not up: {unknown}. "
            f"Those that are: {sorted(image.brokers)}."
        )
    elif replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"The replicas {replicas} are {len(replicas)}, but the other partitions of the topic "
            f"have {replication_factor}. Give all partitions the same number."
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
