"""The threads beside the event loop: what waits for a disk or computes for long runs there."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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

    async def run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def close(self) -> None:
        """Waits for what is running; what has not begun is dropped."""
        for pool in (self.flush, self.compute, self.clean, self.store):
            pool.shutdown(wait=True, cancel_futures=True)
