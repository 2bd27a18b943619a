"""The loop of a simulated cluster: `SimLoop` with fewer instructions for each callback.

Timers of the same time run in the order in which they were set. `after_callback` is called with the
process whose callback has run.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from tests.sim.txn_loop import INCARNATION, Incarnation, SimLoop


class ClusterLoop(SimLoop):
    """The loop of all processes."""

    def __init__(self, random: Random, max_job_ms: int) -> None:
        super().__init__(random, max_job_ms)
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self.after_callback: Callable[[Incarnation], None] = lambda incarnation: None

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        ready = self._ready
        while not ready:
            if not self._timers:
                raise RuntimeError("nothing is left to do, and somebody waits")
            when, _, timer = heappop(self._timers)
            if not timer._cancelled:
                if when > self._now:
                    self._now = when
                ready.append(timer)
        handle = ready.popleft()
        if handle._cancelled:
            return
        incarnation = handle._context.get(INCARNATION)  # type: ignore[attr-defined]
        if incarnation is None:
            handle._run()
            self.steps += 1
        elif not incarnation.alive:
            # A reference is kept so that garbage collection does not run its `finally` blocks.
            self._dead.append(handle)
        elif incarnation.is_paused:
            incarnation.held.append(handle)
        else:
            handle._run()
            self.steps += 1
            self.after_callback(incarnation)
        if self.failure is not None:
            self.stop()

    def close_silently(self) -> None:
        super().close_silently()
        self._timers.clear()
