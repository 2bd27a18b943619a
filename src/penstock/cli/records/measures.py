"""Statistics of `penstock perf`: latencies, rates and pacing. No I/O."""

import math
from array import array
from collections.abc import Iterable
from typing import Final

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)


class Latencies:
    """Times in milliseconds, each for a number of records."""

    def __init__(self) -> None:
        self._times = array("d")
        self._counts = array("q")

    def add(self, milliseconds: float, records: int = 1) -> None:
        self._times.append(milliseconds)
        self._counts.append(records)

    @property
    def records(self) -> int:
        return sum(self._counts)

    def average(self) -> float:
        """Returns the average; NaN without records."""
        total = self.records
        if not total:
            return math.nan
        pairs = zip(self._times, self._counts, strict=True)
        return sum(pair * count for pair, count in pairs) / total

    def largest(self) -> float:
        return max(self._times, default=math.nan)

    def percentiles(self, percents: Iterable[float] = PERCENTILES) -> dict[float, float]:
        """Returns for each percentage the longest time of that share of the records."""
        pairs = sorted(zip(self._times, self._counts, strict=True))
        total = self.records
        times = {}
        for percent in percents:
            rank = math.ceil(total * percent / 100)
            counted = 0
            times[percent] = math.nan
            for pair, count in pairs:
                counted += count
                if counted >= rank:
                    times[percent] = pair
                    break
        return times


class Pace:
    """Limits the number of records per second; None for no limit."""

    def __init__(self, per_second: float | None, started: float) -> None:
        self._per_second = per_second
        self._started = started

    def wait_s(self, records: int, now: float) -> float:
        """Returns how long to wait after this number of records."""
        if self._per_second is None:
            return 0.0
        return max(0.0, self._started + records / self._per_second - now)

    def bulk(self, largest: int) -> int:
        """Returns how many records to send at once: with a limit, those of 10 ms at most."""
        if self._per_second is None:
            return largest
        return max(1, min(largest, int(self._per_second / 100)))


def rates(records: int, size: int, seconds: float) -> dict[str, float]:
    """Returns records and megabytes (of 1,000,000 bytes) per second."""
    seconds = max(seconds, 1e-9)
    return {"records_per_second": records / seconds, "mb_per_second": size / seconds / 1e6}


def latency_fields(latencies: Latencies) -> dict[str, float | None]:
    """Returns average, maximum and percentiles under their printed names; None if unknown."""
    values = {"average": latencies.average(), "max": latencies.largest()}
    for percent, percentile in latencies.percentiles().items():
        values[f"p{percent:g}"] = percentile
    return {f"latency_ms_{name}": _or_none(value) for name, value in values.items()}


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
