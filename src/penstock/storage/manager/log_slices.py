"""Passes over all logs in slices, so that maintenance holds the event loop for milliseconds only.

With 100,000 logs, one look at each of them takes 100 ms. A tick of the maintenance therefore looks
at `SLICE` logs, and the next one continues with the others.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from penstock.storage.log.log import Log

SLICE: Final = 1000


class LogSlices:
    """A pass over the logs that `list_logs` returns at its start."""

    def __init__(self, list_logs: Callable[[], Iterable[Log]]) -> None:
        self._list_logs = list_logs
        self._remaining_logs: Iterator[Log] = iter(())

    def begin(self) -> None:
        """Starts a pass, in place of one that has not ended."""
        self._remaining_logs = iter(list(self._list_logs()))

    def take(self) -> list[Log]:
        """Returns the next logs of the pass; none after its end. Some may be deleted by now."""
        return list(islice(self._remaining_logs, SLICE))

    def take_endlessly(self) -> list[Log]:
        """Returns the next logs, and begins another pass after the last one."""
        logs = self.take()
        if len(logs) < SLICE:
            self.begin()
            logs += islice(self._remaining_logs, SLICE - len(logs))
        return logs
