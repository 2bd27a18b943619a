"""Measurements of the broker, alternating with what it is compared with."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.broker_process import Server
from bench.report import Row


class Cost(NamedTuple):
    seconds: float
    cpu: float
    """Processor seconds of the server, in user space and in the kernel."""


def cost(server: Server, action: Callable[[], object]) -> Cost:
    cpu = server.cpu_seconds()
    start = time.perf_counter()
    action()
    return Cost(time.perf_counter() - start, server.cpu_seconds() - cpu)


def in_turns(rounds: int, *measures: Callable[[], Cost]) -> list[Cost]:
    """Returns the shortest time of each, and its mean processor time (in steps of 10 ms).

    Noise affects all of them alike.
    """
    return [least(costs) for costs in rounds_of(rounds, *measures)]


def rounds_of(rounds: int, *measures: Callable[[], Cost]) -> list[list[Cost]]:
    """Returns the times of each measure by round; in a round they run one after the other."""
    rounds_of_costs = [[measure() for measure in measures] for _ in range(rounds)]
    return [list(costs) for costs in zip(*rounds_of_costs, strict=True)]


def least(costs: Sequence[Cost]) -> Cost:
    seconds = min(cost.seconds for cost in costs)
    return Cost(seconds, sum(cost.cpu for cost in costs) / len(costs))


def typical_ratio(costs: Sequence[Cost], others: Sequence[Cost]) -> float:
    """Returns the ratio of two times in the same round: the median over the rounds.

    For two that differ little: the least time of each comes from different moments, and the luck
    of one of them would be most of the difference.
    """
    pairs = zip(costs, others, strict=True)
    return statistics.median(pair.seconds / other_cost.seconds for pair, other_cost in pairs)


def throughput(name: str, measured: Cost, gigabytes: float, whose: str = "broker ") -> list[Row]:
    """Returns rows for throughput and processor time per byte."""
    return [
        Row(name, gigabytes / measured.seconds * 1000, "MB/s"),
        Row(f"  {whose}CPU", measured.cpu / gigabytes, "s/GB"),
    ]
