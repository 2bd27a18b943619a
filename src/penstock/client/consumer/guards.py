"""Guards against the concurrent use of a consumer.

Both are context managers for the calls that wait. `instant` is one for the calls that do not.
"""

import asyncio
import threading
from contextlib import AbstractContextManager, nullcontext

from penstock.client.errors import ConcurrentUseError


class TaskGuard:
    """Lets one asyncio task in at a time, any number of times; others get ConcurrentUseError.

    Calls that do not wait are open to all tasks.
    """

    def __init__(self) -> None:
        self.instant: AbstractContextManager[None] = nullcontext()
        self._owner: asyncio.Task[object] | None = None
        self._depth = 0

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if self._owner is not None and self._owner is not task:
            raise ConcurrentUseError(
                "this consumer is in use by another task",
                remedy="give each task a consumer of its own (of the same group), or pass records "
                "through a queue",
            )
        self._owner = task
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


class ThreadGuard:
    """Lets one thread in at a time, any number of times; others get ConcurrentUseError."""

    def __init__(self) -> None:
        self.instant = self
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUseError(
                "this consumer is in use by another thread",
                remedy="give each thread a consumer of its own (of the same group), or pass "
                "records through a queue; only wakeup() may be called from any thread",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
