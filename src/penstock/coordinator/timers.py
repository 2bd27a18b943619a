"""A queue of timers, each a value with a deadline."""

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
"""The timers."""


class TimerQueue(Generic[K]):
    """Deadlines by key. Setting a key again replaces its deadline, so each key is due at most once.

    Heartbeats set their timers again long before they are due. So a replaced deadline stays in the
    heap until it reaches the top; the heap is rebuilt once most deadlines in it are replaced ones.
    """

    def __init__(self) -> None:
        self._deadlines: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline_ms: int) -> None:
        self._counter += 1
        self._deadlines[key] = (deadline_ms, self._counter)
        heappush(self._heap, (deadline_ms, self._counter, key))
        if len(self._heap) > 64 + 4 * len(self._deadlines):
            self._heap = [(*entry, key) for key, entry in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def cancel_where(self, matches: Callable[[K], bool]) -> None:
        """Cancels all keys that match; takes time for every key."""
        for key in [key for key in self._deadlines if matches(key)]:
            del self._deadlines[key]

    def next_deadline(self) -> int | None:
        """Returns the earliest deadline; None if no timer is set."""
        self._drop_replaced()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: int) -> K | None:
        """Removes and returns the key with the earliest deadline; None if none is due.

        Handle one key before popping the next: handling may cancel others.
        """
        self._drop_replaced()
        if not self._heap or self._heap[0][0] > now:
            return None
        key = heappop(self._heap)[2]
        del self._deadlines[key]
        return key

    def _drop_replaced(self) -> None:
        while self._heap:
            deadline, counter, key = self._heap[0]
            if self._deadlines.get(key) == (deadline, counter):
                return
            heappop(self._heap)
