"""What a measurement gives back, and how it is measured."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One figure. `met` is None where there is no target."""

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
    """Median time of one call. The machine may be noisy: figures compare within one run."""
    taken = []
    gc.collect()
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def best_seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Least time of one call: what the code costs where nothing else runs."""
    return min(seconds(action, 1) for _ in range(repeats))
