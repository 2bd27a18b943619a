"""A histogram of plain integers: cheap to record, read when metrics are scraped."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

TIME_BOUNDS: Final = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Upper bounds in seconds for times of requests and disks."""


class Histogram:
    """Counts values by their upper bounds; the last count is that of values above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = TIME_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def record(self, value: float, weight: int = 1) -> None:
        """Counts a value `weight` times: it stands for others that were not measured."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight

    @property
    def count(self) -> int:
        return sum(self.counts)
