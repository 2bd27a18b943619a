"""Buckets for values whose percentiles are wanted."""

import struct
from collections.abc import Sequence
from math import inf, nan, sqrt
from typing import Final, Protocol

_FLOAT: Final = struct.Struct("f")


class BinScheme(Protocol):
    """Which bucket a value belongs to, and which value stands for a bucket."""

    @property
    def bins(self) -> int: ...

    def to_bin(self, value: float) -> int:
        """Values that are too small or too large belong to the first or the last bucket."""
        ...

    def from_bin(self, number: int) -> float:
        """The smallest value of the bucket."""
        ...


class ConstantBins:
    """Buckets of the same width, from `min_value` to `max_value`."""

    def __init__(self, bins: int, min_value: float, max_value: float) -> None:
        _check(bins, min_value, max_value)
        self.bins = bins
        self._min = min_value
        self._max = max_value
        self._width = (max_value - min_value) / bins

    def to_bin(self, value: float) -> int:
        if value <= self._min:
            return 0
        if value >= self._max:
            return self.bins - 1
        return int((value - self._min) / self._width)

    def from_bin(self, number: int) -> float:
        return self._min + number * self._width


class LinearBins:
    """Buckets from 0 to `max_value`, each wider than the one before: right for latencies."""

    def __init__(self, bins: int, max_value: float) -> None:
        _check(bins, 0.0, max_value)
        self.bins = bins
        self._max = max_value
        self._scale = max_value / (bins * (bins - 1.0) / 2.0)

    def to_bin(self, value: float) -> int:
        if value <= 0.0:
            return 0
        if value >= self._max:
            return self.bins - 1
        return int(-0.5 + 0.5 * sqrt(1.0 + 8.0 * value / self._scale))

    def from_bin(self, number: int) -> float:
        return self._scale * (number * (number + 1.0)) / 2.0


def _check(bins: int, min_value: float, max_value: float) -> None:
    if bins < 2:
        raise ValueError(f"a histogram needs at least 2 bins, not {bins}")
    if not min_value < max_value:
        raise ValueError(f"the largest value {max_value} must be above the smallest {min_value}")


def percentile(counts: Sequence[Sequence[int]], scheme: BinScheme, percent: float) -> float:
    """The value of the first bucket that more than `percent` of all counted values are up to.

    `counts` are histograms of the same scheme. NaN where nothing was counted.
    """
    total = sum(map(sum, counts))
    if not total:
        return nan
    # In single precision as Kafka does it, so that 99.9 % and 999 of 1000 are the same number.
    wanted = _as_float(percent / 100.0)
    so_far = 0
    for number, here in enumerate(map(sum, zip(*counts, strict=True))):
        so_far += here
        if here and _as_float(so_far / total) > wanted:
            return scheme.from_bin(number)
    return inf


def _as_float(value: float) -> float:
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded
