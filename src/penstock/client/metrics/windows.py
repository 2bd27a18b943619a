"""The values of the last minutes, aggregated in samples like Kafka's SampledStat.

A sample aggregates the values of one window of time, which starts with its first value. There are
`num_samples` of them, and one more that overlaps the start of the measured time.
"""

from collections.abc import Callable
from math import inf

from penstock.client.metrics.histogram import LinearBins


class Sample:
    """The aggregated values of one window."""

    __slots__ = ("count", "histogram", "last_ms", "max", "start_ms", "sum")

    def __init__(self, now_ms: int, bins: int) -> None:
        self.reset(now_ms, bins)

    def reset(self, now_ms: int, bins: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.count = 0
        self.sum = 0.0
        self.max = -inf
        self.histogram = [0] * bins


class Windows:
    """Samples of the same length. Not thread-safe."""

    def __init__(self, num_samples: int, window_ms: int) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self._bins: LinearBins | None = None
        self._to_bin: Callable[[float], int] | None = None
        self._past_count = 0
        self._past_sum = 0.0
        self._samples: list[Sample] = []
        self._index = 0
        self._current: Sample | None = None

    def use_bins(self, bins: LinearBins) -> None:
        """Counts values in bins too, from now on.

        Raises ValueError for other bins than before: a sensor has one histogram.
        """
        if self._bins is not None and self._bins is not bins:
            raise ValueError("all percentiles of a sensor must use the same LinearBins object")
        self._bins = bins
        self._to_bin = bins.to_bin
        for sample in self._samples:
            sample.histogram = sample.histogram or [0] * bins.bins

    def record(self, value: float, now_ms: int) -> None:
        sample = self._current
        if sample is None:
            sample = self._append(now_ms)
        elif now_ms - sample.start_ms >= self.window_ms:
            sample = self._advance(now_ms)
        sample.count += 1
        sample.sum += value
        sample.last_ms = now_ms
        if value > sample.max:
            sample.max = value
        if self._to_bin is not None:
            sample.histogram[self._to_bin(value)] += 1

    def samples(self, now_ms: int) -> list[Sample]:
        """Returns all samples, after resetting those with values that are too old."""
        max_age_ms = self.num_samples * self.window_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= max_age_ms:
                self._reset(sample, now_ms)
        return self._samples

    def total_count(self) -> int:
        """Returns the number of values since the start."""
        return self._past_count + sum(sample.count for sample in self._samples)

    def total_sum(self) -> float:
        """Returns the sum of the values since the start."""
        return self._past_sum + sum(sample.sum for sample in self._samples)

    def covered_ms(self, now_ms: int) -> int:
        """Returns the time that a rate refers to, at least `num_samples - 1` whole windows.

        Without this minimum, the first values after the start would give a huge rate.
        """
        samples = self.samples(now_ms)
        if not samples:
            self._append(now_ms)
        elapsed = now_ms - min(sample.start_ms for sample in samples)
        missing = self.num_samples - 1 - elapsed // self.window_ms
        if missing > 0:
            elapsed += missing * self.window_ms
        return max(elapsed, 1)

    def _bin_count(self) -> int:
        return 0 if self._bins is None else self._bins.bins

    def _append(self, now_ms: int) -> Sample:
        sample = Sample(now_ms, self._bin_count())
        self._samples.append(sample)
        self._current = sample
        return sample

    def _advance(self, now_ms: int) -> Sample:
        self._index = (self._index + 1) % (self.num_samples + 1)
        if self._index >= len(self._samples):
            return self._append(now_ms)
        sample = self._current = self._samples[self._index]
        self._reset(sample, now_ms)
        return sample

    def _reset(self, sample: Sample, now_ms: int) -> None:
        self._past_count += sample.count
        self._past_sum += sample.sum
        sample.reset(now_ms, self._bin_count())
