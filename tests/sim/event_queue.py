"""Simulated time: actions that run when they are due, in an order determined by the seed."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

START_MS = 1_000_000


class EventQueue:
    """The clock of a simulation, its random numbers and the actions that are due."""

    def __init__(self, seed: int, after_action: Callable[[], None]) -> None:
        self.random = Random(seed)
        self.now = START_MS
        self._after_action = after_action
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + delay_ms, self._count, action))

    def run_until(self, time: int) -> None:
        """Runs all actions up to a time; `after_action` is called after each."""
        while self._queue and self._queue[0][0] <= time:
            self.now, _, action = heappop(self._queue)
            action()
            self._after_action()
        self.now = time

    def chance(self, probability: float) -> bool:
        """Returns True with this probability."""
        return self.random.random() < probability
