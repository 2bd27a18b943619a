"""Exponential back-off with jitter."""

import random
from collections.abc import Callable


class Backoff:
    """Delays that double with each failure up to a limit, spread randomly so that many clients do
    not retry at the same moment.

    `rng` returns numbers from 0 to below 1.
    """

    def __init__(
        self,
        initial_ms: int,
        max_ms: int,
        *,
        jitter: float = 0.2,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._jitter = jitter
        self._rng = rng

    def delay_ms(self, attempts: int) -> int:
        """Returns the delay before the next attempt, after `attempts` earlier delays."""
        if self._initial_ms == 0:
            return 0
        # Any limit is reached before 2**32; a larger power would only cost time.
        delay = min(self._initial_ms * 2.0 ** min(attempts, 32), self._max_ms)
        if self._jitter:
            delay *= 1.0 - self._jitter + 2.0 * self._jitter * self._rng()
        return int(min(delay, self._max_ms))
