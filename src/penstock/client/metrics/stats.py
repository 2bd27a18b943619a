"""What can be read of a sensor's values. Each is one of Kafka's stats of the same name."""

from math import nan
from typing import Protocol

from penstock.client.metrics.histogram import BinScheme, percentile
from penstock.client.metrics.windows import Windows


class Stat(Protocol):
    """A number that is read of the values; it keeps none itself.

    It counts over the sensor's windows, or over windows of `window_ms` where that is not None.
    `scheme` are the buckets that it needs.
    """

    @property
    def window_ms(self) -> int | None: ...

    @property
    def scheme(self) -> BinScheme | None: ...

    def measure(self, windows: Windows, now_ms: int) -> float: ...


class _Simple:
    window_ms: int | None = None
    scheme: BinScheme | None = None


class Total(_Simple):
    """The sum of all values ever (Kafka's CumulativeSum)."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return windows.total_sum()


class Count(_Simple):
    """How many values there were ever (Kafka's CumulativeCount)."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return float(windows.total_count())


class Value(_Simple):
    """The last value; 0 before the first."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return windows.last


class WindowedSum(_Simple):
    """The sum of the values in the windows."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return sum((sample.sum for sample in windows.samples(now_ms)), 0.0)


class WindowedCount(_Simple):
    """How many values there were in the windows."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return float(sum(sample.count for sample in windows.samples(now_ms)))


class Avg(_Simple):
    """The average in the windows; NaN where there is no value."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        samples = windows.samples(now_ms)
        count = sum(sample.count for sample in samples)
        return sum(sample.sum for sample in samples) / count if count else nan


class Max(_Simple):
    """The largest value in the windows; NaN where there is none."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return max((s.max for s in windows.samples(now_ms) if s.count), default=nan)


class Min(_Simple):
    """The smallest value in the windows; NaN where there is none."""

    def measure(self, windows: Windows, now_ms: int) -> float:
        return min((s.min for s in windows.samples(now_ms) if s.count), default=nan)


class Rate(_Simple):
    """What the values in the windows amount to in each `per_ms` milliseconds.

    With `of_count` it is how many there were, not their sum. `window_ms` are windows of its own:
    Kafka's rates per hour are `Rate(of_count=True, per_ms=3_600_000, window_ms=3_600_000)`.
    """

    def __init__(
        self, *, of_count: bool = False, per_ms: int = 1000, window_ms: int | None = None
    ) -> None:
        self.window_ms = window_ms
        self._per_ms = per_ms
        self._amount = WindowedCount() if of_count else WindowedSum()

    def measure(self, windows: Windows, now_ms: int) -> float:
        amount = self._amount.measure(windows, now_ms)
        return amount / (windows.covered_ms(now_ms) / self._per_ms)


class Percentile(_Simple):
    """The value that `percent` of those in the windows are up to, as exact as the buckets are."""

    def __init__(self, percent: float, scheme: BinScheme) -> None:
        self.scheme = scheme
        self._percent = percent

    def measure(self, windows: Windows, now_ms: int) -> float:
        counts = [sample.histogram for sample in windows.samples(now_ms)]
        assert self.scheme is not None
        return percentile(counts, self.scheme, self._percent)
