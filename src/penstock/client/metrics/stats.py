"""Statistics of a sensor's values. Each is one of Kafka's stats."""

from math import nan
from typing import Protocol

from penstock.client.metrics.histogram import LinearBins, percentile
from penstock.client.metrics.windows import Windows


class Stat(Protocol):
    """A number that is computed from the values in a sensor's windows. Stats have no state."""

    @property
    def bins(self) -> LinearBins | None:
        """The bins that the windows must count values in, if any."""
        ...

    def measure(self, windows: Windows, now_ms: int) -> float: ...


class _WithoutBins:
    bins: LinearBins | None = None


class Total(_WithoutBins):
    """The sum of all values since the start (Kafka's CumulativeSum)."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return windows.total_sum()


class Count(_WithoutBins):
    """The number of values since the start (Kafka's CumulativeCount)."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return float(windows.total_count())


class Avg(_WithoutBins):
    """The average of the values in the windows; NaN without values."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        samples = windows.samples(now_ms)
        count = sum(sample.count for sample in samples)
        return sum(sample.sum for sample in samples) / count if count else nan


class Max(_WithoutBins):
    """The largest value in the windows; NaN without values."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return max((s.max for s in windows.samples(now_ms) if s.count), default=nan)


class Rate(_WithoutBins):
    """The sum of the values in the windows per second; with `of_count`, their number."""

    def __init__(self, *, of_count: bool = False) -> None:
        self._of_count = of_count

    def measure(self, windows: Windows, now_ms: int) -> float:
        samples = windows.samples(now_ms)
        amount = sum(sample.count if self._of_count else sample.sum for sample in samples)
        return amount / (windows.covered_ms(now_ms) / 1000)


class Percentile:
    """The value below which `percent` of the values in the windows lie, rounded to a bin."""

    def __init__(self, percent: float, bins: LinearBins) -> None:
        self.bins = bins
        self._percent = percent

    def measure(self, windows: Windows, now_ms: int) -> float:
        counts = [sample.histogram for sample in windows.samples(now_ms)]
        return percentile(counts, self.bins, self._percent)
