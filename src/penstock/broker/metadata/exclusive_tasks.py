"""Tasks of which one runs at a time: the controller's decisions, and what changes their image."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.broker.errors import ClientLeftError
from penstock.broker.metadata.controller_queue import ControllerQueue
from penstock.broker.request import Request

R = TypeVar("R")
Work = Callable[[], Coroutine[Any, Any, R]]


class ExclusiveTasks:
    """Runs tasks one after the other, in the order of the calls. It belongs to the event loop."""

    def __init__(self, queue: ControllerQueue) -> None:
        self.lock = asyncio.Lock()
        """Held while a task of `run` runs."""
        self._queue = queue
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Work[R], request: Request | None = None) -> R:
        """Runs `work` with the lock held, to its end even if the caller is cancelled.

        The `request` of a client waits in the queue, and raises what `ControllerQueue.enter` does,
        or ClientLeftError if its client leaves before the work starts.
        """
        if request is None:
            return await asyncio.shield(self.spawn(self._locked(work)))
        waiting = self._queue.enter(request)

        async def start() -> R:
            waiting.start()
            return await work()

        waiting.task = task = self.spawn(self._locked(start))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if waiting.is_dropped:
                raise ClientLeftError from None
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, R]) -> "asyncio.Task[R]":
        """Starts a task without the lock, which `wait` waits for."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Waits until no task runs, also none that was started meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _locked(self, work: Work[R]) -> R:
        async with self.lock:
            return await work()
