"""How long to wait before trying again."""

import random
from collections.abc import Callable


class Backoff:
    """Doubling waits up to a limit, each spread at random so that clients do not come in step.

    `delay_ms(0)` is about `initial_ms`. `chance` gives numbers from 0 to below 1.
    """

    def __init__(
        self,
        initial_ms: int,
        max_ms: int,
        *,
        jitter: float = 0.2,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._jitter = jitter
        self._chance = chance

    def delay_ms(self, attempts: int) -> int:
        """After `attempts` failures that were followed by a wait already."""
        if self._initial_ms == 0:
            return 0
        # Beyond 2**32 the limit is reached, whatever it is; the power would only grow.
        delay = min(self._initial_ms * 2.0 ** min(attempts, 32), self._max_ms)
        if self._jitter:
            delay *= 1.0 - self._jitter + 2.0 * self._jitter * self._chance()
        return int(min(delay, self._max_ms))
