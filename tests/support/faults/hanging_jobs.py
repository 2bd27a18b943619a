"""Jobs of worker threads that can hang in a call of the disk, on a simulated loop.

A job runs in a thread of its own, and the loop waits until it has ended or hangs: only one of them
runs at a time, so that a run is reproducible. A job that hangs occupies a thread of its pool.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable


class AbandonedError(BaseException):
    """The run has ended while the job was hanging. Not an `Exception`: no code catches it."""


class Job:
    """A function in a thread; `run_until_blocked` returns when it has ended or hangs."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_blocked = threading.Event()
        self._may_continue = threading.Event()
        self._is_abandoned = False
        self._error: BaseException | None = None
        self.has_ended = False

    def _run(self) -> None:
        _current.job = self
        try:
            self._function()
        except AbandonedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised on the loop
            self._error = error
        finally:
            self.has_ended = True
            self._is_blocked.set()

    def run_until_blocked(self) -> None:
        self._is_blocked.clear()
        self._may_continue.set()
        if not self._thread.is_alive():
            self._thread.start()
        self._is_blocked.wait()
        if self._error is not None:
            raise self._error

    def hang(self) -> None:
        """Called by the job: returns when it may continue."""
        self._may_continue.clear()
        self._is_blocked.set()
        self._may_continue.wait()
        if self._is_abandoned:
            raise AbandonedError

    def abandon(self) -> None:
        self._is_abandoned = True
        self.run_until_blocked()
        self._thread.join()


class _Current(threading.local):
    job: Job | None = None


_current = _Current()


def hang() -> None:
    """Makes the current job hang; raises AssertionError on the event loop, which must not."""
    job = _current.job
    assert job is not None, "the event loop waits for a call of the disk that hangs"
    job.hang()


class JobPools:
    """The jobs of all thread pools: at most so many of a pool hang as it has threads."""

    def __init__(self) -> None:
        self._hanging: dict[Job, object] = {}
        self._busy: Counter[object] = Counter()
        self._queues: dict[object, deque[Job]] = {}

    @property
    def hanging(self) -> int:
        return len(self._hanging)

    def run(self, pool: object, function: Callable[[], None], *, may_hang: bool) -> None:
        """Runs a job of a pool, later if all its threads hang."""
        if self._busy[pool] >= getattr(pool, "_max_workers", 1 << 30):
            self._queues.setdefault(pool, deque()).append(Job(function))
        elif may_hang:
            self._start(pool, Job(function))
        else:
            function()

    def _start(self, pool: object, job: Job) -> None:
        job.run_until_blocked()
        if not job.has_ended:
            self._hanging[job] = pool
            self._busy[pool] += 1

    def release(self) -> None:
        """Lets all jobs that hang continue."""
        for job, pool in list(self._hanging.items()):
            job.run_until_blocked()
            if job.has_ended:
                del self._hanging[job]
                self._busy[pool] -= 1
        for pool, queue in self._queues.items():
            while queue and self._busy[pool] < getattr(pool, "_max_workers", 1 << 30):
                self._start(pool, queue.popleft())

    def abandon(self) -> None:
        """Ends all jobs that hang, as the end of the process does."""
        for job in self._hanging:
            job.abandon()
        self._hanging.clear()
        self._queues.clear()
