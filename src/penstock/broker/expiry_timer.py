"""One timer for many waits that seldom last until their timeout, such as those for replicas.

uvloop needs 2 to 5 µs to create and cancel a timer, as much as the append of a small batch. Waits
are kept in a dictionary instead, and one timer runs when the first of them would be over::

    timer.add(wait, timeout_s)      # sets `wait.deadline`
    timer.discard(wait)             # its result has come
"""

import asyncio
import math
from typing import Final, Protocol

_MIN_INTERVAL_S: Final = 0.01
"""Many waits with different deadlines are examined together, not once for each deadline."""


class Expirable(Protocol):
    """A wait, which is hashed by identity."""

    deadline: float

    def expire(self) -> None:
        """Ends the wait: its timeout is over. It has been discarded."""


class ExpiryTimer:
    """The waits of one event loop that have not ended. A wait may last 10 ms too long."""

    __slots__ = ("_handle", "_loop", "_next", "_waits")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waits: dict[Expirable, None] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._next = math.inf
        """When the timer runs, by the clock of the loop: not much later than the first deadline."""

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: Expirable, timeout_s: float) -> None:
        """Calls `wait.expire` after so many seconds, unless the wait is discarded before."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        wait.deadline = deadline = loop.time() + timeout_s
        self._waits[wait] = None
        if deadline < self._next:
            self._run_at(loop, deadline)

    def discard(self, wait: Expirable) -> None:
        self._waits.pop(wait, None)

    def _run_at(self, loop: asyncio.AbstractEventLoop, time_s: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = time_s
        self._handle = loop.call_at(time_s, self._run, loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next = math.inf
        self._handle = None
        now = loop.time()
        for wait in [wait for wait in self._waits if wait.deadline <= now]:
            if wait in self._waits:
                del self._waits[wait]
                wait.expire()
        if self._waits:
            first = min(wait.deadline for wait in self._waits)
            self._run_at(loop, min(self._next, max(first, now + _MIN_INTERVAL_S)))
