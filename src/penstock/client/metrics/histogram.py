"""Histograms, for percentiles."""

import struct
from collections.abc import Sequence
from math import inf, nan, sqrt
from typing import Final

_FLOAT: Final = struct.Struct("f")


class LinearBins:
    """Bins from 0 to `max_value` whose width grows linearly, which suits latencies."""

    def __init__(self, bins: int, max_value: float) -> None:
        if bins < 2:
            raise ValueError(f"a histogram needs at least 2 bins, not {bins}")
        if max_value <= 0:
            raise ValueError(f"the largest value of a histogram must be above 0, not {max_value}")
        self.bins = bins
        self._max = max_value
        self._scale = max_value / (bins * (bins - 1.0) / 2.0)

    def to_bin(self, value: float) -> int:
        """Returns the bin of a value; the first or last one for a value out of range."""
        if value <= 0.0:
            return 0
        if value >= self._max:
            return self.bins - 1
        return int(-0.5 + 0.5 * sqrt(1.0 + 8.0 * value / self._scale))

    def from_bin(self, number: int) -> float:
        """Returns the smallest value of a bin."""
        return self._scale * (number * (number + 1.0)) / 2.0


def percentile(counts: Sequence[Sequence[int]], bins: LinearBins, percent: float) -> float:
    """Returns the value of the first bin up to which more than `percent` of the values lie.

    `counts` are histograms with the same bins. Returns NaN if there are no values.
    """
    total = sum(map(sum, counts))
    if not total:
        return nan
    # In single precision as in Kafka, so that 99.9 % and 999 of 1000 are the same number.
    threshold = _as_float(percent / 100.0)
    cumulative = 0
    for number, count in enumerate(map(sum, zip(*counts, strict=True))):
        cumulative += count
        if count and _as_float(cumulative / total) > threshold:
            return bins.from_bin(number)
    return inf


def _as_float(value: float) -> float:
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded
