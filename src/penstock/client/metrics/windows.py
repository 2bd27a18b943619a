"""The values of the last minutes, summed up in samples as Kafka's SampledStat does it.

A sample takes values for one window of time, from its first one on. As many are kept as is asked
for, and one more, which reaches into the time that counts.
"""

from collections.abc import Callable
from math import inf

from penstock.client.metrics.histogram import BinScheme


class Sample:
    """What one window of time has seen."""

    __slots__ = ("count", "histogram", "last_ms", "max", "min", "start_ms", "sum")

    def __init__(self, now_ms: int, bins: int) -> None:
        self.reset(now_ms, bins)

    def reset(self, now_ms: int, bins: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.count = 0
        self.sum = 0.0
        self.max = -inf
        self.min = inf
        self.histogram = [0] * bins


class Windows:
    """Samples of the same length. Who uses it must lock it."""

    __slots__ = (
        "_at",
        "_current",
        "_past_count",
        "_past_sum",
        "_samples",
        "_to_bin",
        "last",
        "num_samples",
        "scheme",
        "window_ms",
    )

    def __init__(self, num_samples: int, window_ms: int) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.scheme: BinScheme | None = None
        self._to_bin: Callable[[float], int] | None = None
        self.last = 0.0
        self._past_count = 0
        self._past_sum = 0.0
        self._samples: list[Sample] = []
        self._at = 0
        self._current: Sample | None = None

    def use_bins(self, scheme: BinScheme) -> None:
        """Count the values in buckets as well, from now on."""
        if self.scheme is not None and self.scheme is not scheme:
            raise ValueError("all percentiles of a sensor must use the same BinScheme object")
        self.scheme = scheme
        self._to_bin = scheme.to_bin
        for sample in self._samples:
            sample.histogram = sample.histogram or [0] * scheme.bins

    def record(self, value: float, now_ms: int) -> None:
        sample = self._current
        if sample is None:
            sample = self._append(now_ms)
        elif now_ms - sample.start_ms >= self.window_ms:
            sample = self._advance(now_ms)
        sample.count += 1
        sample.sum += value
        sample.last_ms = now_ms
        self.last = value
        if value > sample.max:
            sample.max = value
        if value < sample.min:
            sample.min = value
        if self._to_bin is not None:
            sample.histogram[self._to_bin(value)] += 1

    def samples(self, now_ms: int) -> list[Sample]:
        """All samples; those whose values are too old are empty again."""
        too_old = self.num_samples * self.window_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= too_old:
                self._reset(sample, now_ms)
        return self._samples

    def total_count(self) -> int:
        """How many values there were ever."""
        return self._past_count + sum(sample.count for sample in self._samples)

    def total_sum(self) -> float:
        """The sum of all values ever."""
        return self._past_sum + sum(sample.sum for sample in self._samples)

    def covered_ms(self, now_ms: int) -> int:
        """The time that a rate is about: never less than the full windows that are kept.

        Without this floor the first events after a start would look like a flood.
        """
        samples = self.samples(now_ms)
        if not samples:
            self._append(now_ms)
        elapsed = now_ms - min(sample.start_ms for sample in samples)
        missing = self.num_samples - 1 - elapsed // self.window_ms
        if missing > 0:
            elapsed += missing * self.window_ms
        return max(elapsed, 1)

    @property
    def _bins(self) -> int:
        return 0 if self.scheme is None else self.scheme.bins

    def _append(self, now_ms: int) -> Sample:
        sample = Sample(now_ms, self._bins)
        self._samples.append(sample)
        self._current = sample
        return sample

    def _advance(self, now_ms: int) -> Sample:
        self._at = (self._at + 1) % (self.num_samples + 1)
        if self._at >= len(self._samples):
            return self._append(now_ms)
        sample = self._current = self._samples[self._at]
        self._reset(sample, now_ms)
        return sample

    def _reset(self, sample: Sample, now_ms: int) -> None:
        self._past_count += sample.count
        self._past_sum += sample.sum
        sample.reset(now_ms, self._bins)
