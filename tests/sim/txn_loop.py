"""An event loop with a simulated clock, which advances only when no callback is ready.

The broker's asyncio code runs on it unchanged and reproducibly: callbacks run in the order of their
scheduling, thread jobs run after a delay chosen by the seed, and a process can be killed: nothing
that belongs to its `Incarnation` runs afterwards, not even a `finally`.
"""

import asyncio
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Incarnation:
    """One run of a process. What is started in its `context` ends with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.is_paused = False
        """Whether it is stopped, as by SIGSTOP: `held` waits until it continues."""
        self.held: list[asyncio.Handle] = []
        self.steps = 0
        """How many of its callbacks have run."""
        self.context: Context = copy_context()
        self.context.run(INCARNATION.set, self)


INCARNATION: ContextVar[Incarnation | None] = ContextVar("incarnation", default=None)


class SimLoop(BaseEventLoop):
    """The loop. `after_step` is called after each callback of an incarnation, `failure` ends it."""

    _ready: "deque[asyncio.Handle]"
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, random: Random, max_job_ms: int) -> None:
        super().__init__()
        self._random = random
        self._max_job_ms = max_job_ms
        self._now = 0.0
        self.steps = 0
        """How many callbacks have run."""
        self.outside = copy_context()
        """The context of callbacks that belong to no incarnation."""
        self.after_step: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        self._dead: list[asyncio.Handle] = []
        self.set_exception_handler(self._noticed)

    # --- time

    def time(self) -> float:
        return self._now

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
        incarnation = handle._context.get(INCARNATION)  # type: ignore[attr-defined]
        if incarnation is not None and not incarnation.alive:
            # A reference is kept so that garbage collection does not run its `finally` blocks.
            self._dead.append(handle)
        elif incarnation is not None and incarnation.is_paused:
            incarnation.held.append(handle)
        elif not handle.cancelled():
            handle._run()
            self.steps += 1
            if incarnation is not None:
                self.after_step()
        if self.failure is not None:
            self.stop()

    def resume(self, incarnation: Incarnation) -> None:
        """Continues a process that is paused."""
        incarnation.is_paused = False
        self._ready.extend(incarnation.held)
        incarnation.held.clear()

    # --- threads

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Runs the job in one step after a random delay."""
        done: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it is the waiter's
                done.set_exception(error)
            else:
                done.set_result(result)

        self.call_later(self._random.randrange(1, self._max_job_ms) / 1000, run)
        return done

    # --- ends

    def fail(self, error: BaseException) -> None:
        """Ends the run with this error, if it is the first."""
        if self.failure is None:
            self.failure = error

    def _noticed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(error if error is not None else RuntimeError(context["message"]))

    def close_silently(self) -> None:
        """Cancels all remaining tasks silently and closes the loop."""
        self.set_exception_handler(lambda loop, context: None)
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            with suppress(RuntimeError):
                coroutine.close()
        self._ready.clear()
        self._scheduled.clear()
        self._dead.clear()
        self.close()

    def _write_to_self(self) -> None:
        """Does nothing: no thread waits in a selector."""

    def _process_events(self, event_list: object) -> None:
        """Does nothing: there are no sockets."""
