"""The threads beside the event loop: what waits for a disk or computes for long runs there."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.storage.staged_operation import StagedOperation

T = TypeVar("T")


class Workers:
    """Thread pools by purpose, so that a slow cleaning never delays a flush."""

    def __init__(self) -> None:
        self.flush = ThreadPoolExecutor(4, "penstock-flush")
        """fsync and reads of cold files."""
        self.compute = ThreadPoolExecutor(1, "penstock-compute")
        """Decompressing and compressing."""
        self.clean = ThreadPoolExecutor(1, "penstock-clean")
        """Compaction, and moves of logs between folders."""
        self.store = ThreadPoolExecutor(1, "penstock-store")
        """Commits of cluster metadata, one after the other."""
        self._jobs: set[asyncio.Task[object]] = set()

    async def run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def start(self, pool: ThreadPoolExecutor, operation: StagedOperation[T]) -> "asyncio.Task[T]":
        """Does the first turn of an operation now, and the others when the threads are ready.

        It goes on to its end whoever stops waiting for it.
        """
        ended = operation.advance()
        job = asyncio.get_running_loop().create_task(self._carry_on(pool, operation, ended))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    async def _carry_on(
        self, pool: ThreadPoolExecutor, operation: StagedOperation[T], ended: bool
    ) -> T:
        while not ended:
            await self.run(pool, operation.run)
            ended = operation.advance()
        return operation.result

    async def settle(self) -> None:
        """Waits until all operations that were started have ended."""
        while self._jobs:
            await asyncio.wait(self._jobs)

    def close(self) -> None:
        """Waits for what is running; what has not begun is dropped."""
        for pool in (self.flush, self.compute, self.clean, self.store):
            pool.shutdown(wait=True, cancel_futures=True)
