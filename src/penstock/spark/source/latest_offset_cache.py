"""A cache of end offsets, for idle queries that request them all the time.

Spark calls an idle query about 90 times a second. The cache queries the broker every 20 ms soon
after the last change, and then ever less often: after a tenth of the time since that change, but at
least every 100 ms.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.spark.progress import SourceOffsets

_SHORTEST_S = 0.02
_LONGEST_S = 0.1
_SHARE = 10


class LatestOffsetReader(Protocol):
    """Reads the end offsets of the partitions: `BrokerOffsets`."""

    def latest(self, known: SourceOffsets | None = None) -> SourceOffsets: ...


class LatestOffsetCache:
    """The end offsets of the partitions, up to 100 ms old."""

    def __init__(self, reader: LatestOffsetReader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock
        self._last: SourceOffsets | None = None
        self._read_at = 0.0
        self._changed_at = clock()

    @property
    def last(self) -> SourceOffsets | None:
        """The end offsets that were read last; None before the first call of `latest`."""
        return self._last

    def latest(self, start: SourceOffsets) -> SourceOffsets:
        """Returns the end offsets. The query has read everything up to `start`."""
        now = self._clock()
        if self._last is not None and now < self._read_at + self._pause(now):
            return self._last
        latest = self._reader.latest(start if self._last is None else self._last)
        if latest != self._last:
            self._changed_at = now
        self._last, self._read_at = latest, self._clock()
        return latest

    def _pause(self, now: float) -> float:
        return min(max((now - self._changed_at) / _SHARE, _SHORTEST_S), _LONGEST_S)
