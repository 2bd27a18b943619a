"""Thread pools for work that would block the event loop: disk I/O and long computations."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from penstock.core.memory_budget import MemoryBudget, MemoryKind
from penstock.storage.staged_operation import StagedOperation

T = TypeVar("T")

_UNLIMITED = 2**62
_THREADS_PER_DIR = 4

_COMPUTE_NICENESS = 10
"""Added to the niceness of threads that compute for long. Linux lets a thread of the same priority
as the event loop finish its time slice, up to 5 ms, when both have only one core: beside batches
that decompress to 100 MB, the 99th percentile of small requests was 5.4 ms, and 1.4 ms with this
value; 5 was not enough."""


def _lower_priority() -> None:
    """Lowers the priority of the calling thread; only on Linux a thread has its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, thread)
        with suppress(OSError):  # a sandbox may forbid it, and it is not needed for the work
            os.setpriority(os.PRIO_PROCESS, thread, niceness + _COMPUTE_NICENESS)


def _compute_pool(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, name, initializer=_lower_priority)


class Workers:
    """One thread pool per purpose, so that a slow cleaning never delays a flush."""

    def __init__(self, memory: MemoryBudget | None = None) -> None:
        self.memory = memory or MemoryBudget(_UNLIMITED)
        """The memory of requests in progress, including work on these threads."""
        self.flush = ThreadPoolExecutor(4, "penstock-flush")
        """Cold reads for clients of Fetch 0 to 3."""
        self._flush_pools: dict[str, ThreadPoolExecutor] = {}
        self._read_pools: dict[str, ThreadPoolExecutor] = {}
        self._move_pools: dict[str, ThreadPoolExecutor] = {}
        self._clean_pools: dict[str, ThreadPoolExecutor] = {}
        self.has_hanging_thread = False
        """Whether a thread waits for a disk that does not respond: `close` does not wait then."""
        self.compute = _compute_pool("penstock-compute")
        """Compression and decompression."""
        self.codec = _compute_pool("penstock-codec")
        """Decoding of large requests and encoding of large responses."""
        self.store = ThreadPoolExecutor(1, "penstock-store")
        """Commits of cluster metadata; one thread keeps them in order."""
        self.search = ThreadPoolExecutor(2, "penstock-search")
        """Searches that a client can make slow: by regular expressions, and by timestamps in large
        batches. No flush waits for them."""
        self._operations: set[asyncio.Task[object]] = set()

    def flush_pool(self, log_dir: str) -> ThreadPoolExecutor:
        """Returns the threads for changes of files in a log directory that need a sync.

        Each directory has its own, so that a disk that hangs does not delay the others.
        """
        return _pool_of(self._flush_pools, log_dir, "penstock-sync")

    def read_pool(self, path: str) -> ThreadPoolExecutor:
        """Returns the threads for reads of a file of a partition that is not in memory.

        They are not those of the syncs: a sync that hangs delays no read.
        """
        return _pool_of(self._read_pools, path.rsplit("/", 2)[0], "penstock-read")

    def flush_pool_of(self, log_directory: str) -> ThreadPoolExecutor:
        """Returns `flush_pool` for the directory of a log."""
        return self.flush_pool(log_directory.rpartition("/")[0])

    def move_pool(self, source: str, target: str) -> ThreadPoolExecutor:
        """Returns the thread for moves between two log directories, each of which may hang."""
        return _pool_of(self._move_pools, f"{source}:{target}", "penstock-move", threads=1)

    def clean_pool_of(self, log_directory: str) -> ThreadPoolExecutor:
        """Returns the thread for compaction in the log directory of a log."""
        path = log_directory.rpartition("/")[0]
        return _pool_of(self._clean_pools, path, "penstock-clean", threads=1)

    async def run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def compute_with(self, size: int, work: Callable[[], T]) -> T:
        """Runs `work` on the compute thread, once the `size` bytes that it may take are free."""
        async with self.reserved(size, MemoryKind.WORK):
            return await self.run(self.compute, work)

    @asynccontextmanager
    async def reserved(self, size: int, kind: MemoryKind) -> AsyncIterator[None]:
        """Waits until `size` bytes are free, and reserves them for the time of the block."""
        granted = asyncio.get_running_loop().create_future()
        reservation = self.memory.reserve(
            size, kind, lambda: None if granted.done() else granted.set_result(None)
        )
        try:
            if not reservation.is_granted:
                await granted
            yield
        finally:
            reservation.release()

    def start(self, pool: ThreadPoolExecutor, operation: StagedOperation[T]) -> "asyncio.Task[T]":
        """Runs the first step of an operation now and the others as threads become available.

        The operation continues even if the caller stops waiting for it.
        """
        is_done = operation.advance()
        task = asyncio.get_running_loop().create_task(self._complete(pool, operation, is_done))
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return task

    async def _complete(
        self, pool: ThreadPoolExecutor, operation: StagedOperation[T], is_done: bool
    ) -> T:
        while not is_done:
            await self.run(pool, operation.run)
            is_done = operation.advance()
        return operation.result

    async def wait_for_operations(self) -> None:
        """Waits until all started operations are complete."""
        while self._operations:
            await asyncio.wait(self._operations)

    def close(self) -> None:
        """Waits for running work, unless a thread hangs; work that has not started is dropped."""
        for pool in (
            *self._flush_pools.values(),
            *self._read_pools.values(),
            *self._move_pools.values(),
            *self._clean_pools.values(),
            self.flush,
            self.compute,
            self.codec,
            self.store,
            self.search,
        ):
            pool.shutdown(wait=not self.has_hanging_thread, cancel_futures=True)


def _pool_of(
    pools: dict[str, ThreadPoolExecutor], key: str, name: str, *, threads: int = _THREADS_PER_DIR
) -> ThreadPoolExecutor:
    pool = pools.get(key)
    if pool is None:
        pool = pools[key] = ThreadPoolExecutor(threads, name)
    return pool
