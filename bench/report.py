"""The result of a measurement, and functions that measure time."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One figure. `met` is None if there is no target."""

    name: str
    figure: float
    unit: str
    target: str = ""
    met: bool | None = None


def at_most(name: str, figure: float, unit: str, limit: float) -> Row:
    return Row(name, figure, unit, f"<= {limit:g}", figure <= limit)


def at_least(name: str, figure: float, unit: str, limit: float) -> Row:
    return Row(name, figure, unit, f">= {limit:g}", figure >= limit)


def seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Returns the median time of one call. Compare only figures of the same run."""
    times = []
    gc.collect()
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def best_seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Returns the shortest time of one call, which is the least affected by other programs."""
    return min(seconds(action, 1) for _ in range(repeats))
