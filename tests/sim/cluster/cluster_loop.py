"""The loop of a simulated cluster: processes on it can be paused, as by SIGSTOP."""

import asyncio
from heapq import heappop
from random import Random

from tests.sim.txn_loop import _INCARNATION, Incarnation, SimLoop


class Process(Incarnation):
    """One run of a broker's process."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.is_paused = False
        self.held: list[asyncio.Handle] = []
        """What waits until the process continues."""


class ClusterLoop(SimLoop):
    """A simulated loop. What a paused process has to do is held until it continues."""

    def __init__(self, random: Random, max_job_ms: int = 8) -> None:
        super().__init__(random, max_job_ms)
        self.steps = 0

    def resume(self, process: Process) -> None:
        process.is_paused = False
        self._ready.extend(process.held)
        process.held.clear()

    def _run_once(self) -> None:
        while not self._ready:
            if not self._scheduled:
                raise RuntimeError("nothing is left to do, and somebody waits")
            timer = heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            if not timer.cancelled():
                self._now = max(self._now, timer.when())
                self._ready.append(timer)
        handle = self._ready.popleft()
        process = handle._context.get(_INCARNATION)  # type: ignore[attr-defined]
        if process is not None and not process.alive:
            # A reference is kept so that garbage collection does not run its `finally` blocks.
            self._dead.append(handle)
        elif isinstance(process, Process) and process.is_paused:
            process.held.append(handle)
        elif not handle.cancelled():
            handle._run()
            self.steps += 1
            if process is not None:
                self.after_step()
        if self.failure is not None:
            self.stop()
