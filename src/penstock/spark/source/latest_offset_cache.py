"""How far the partitions reach, for a query that asks all the time.

Spark asks a query that has nothing to do about 90 times a second. The broker is asked as often as
it matters: soon after the last change every 20 ms, later at a tenth of the time that nothing has
come, at most every tenth of a second.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.spark.progress import SourceOffsets

_SHORTEST_S = 0.02
_LONGEST_S = 0.1
_SHARE = 10


class Ends(Protocol):
    """What knows the ends of the partitions: `BrokerOffsets`."""

    def latest(self, known: SourceOffsets | None = None) -> SourceOffsets: ...


class LatestOffsetCache:
    """The ends of the partitions, a little old where nothing happens."""

    def __init__(self, ends: Ends, clock: Callable[[], float]) -> None:
        self._ends = ends
        self._clock = clock
        self._seen: SourceOffsets | None = None
        self._asked = 0.0
        self._changed = clock()

    @property
    def seen(self) -> SourceOffsets | None:
        """What was heard last."""
        return self._seen

    def latest(self, start: SourceOffsets) -> SourceOffsets:
        """`start`: up to where everything was read."""
        now = self._clock()
        if self._seen is not None and now < self._asked + self._pause(now):
            return self._seen
        found = self._ends.latest(start if self._seen is None else self._seen)
        if found != self._seen:
            self._changed = now
        self._seen, self._asked = found, self._clock()
        return found

    def _pause(self, now: float) -> float:
        return min(max((now - self._changed) / _SHARE, _SHORTEST_S), _LONGEST_S)
