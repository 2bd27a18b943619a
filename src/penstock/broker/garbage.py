"""Garbage collection that does not stop the event loop in the middle of a large request.

A full collection visits every object that can be part of a cycle, with all threads stopped: 0.1 s
for a million objects. Python starts one whenever the number of objects has grown by a quarter, so
several during a request with 100,000 elements, whose objects are freed without it anyway.

Most objects of a broker with many partitions live as long as the broker. After a collection that
took long, those that are left are excluded from the following ones.
"""

import asyncio
import gc
import time
from typing import Final

INTERVAL_S: Final = 60.0
RARELY: Final = 1000
"""A full collection after so many collections of the middle generation, instead of after 10: only
a broker that leaves much garbage behind within `INTERVAL_S` has one that is not planned."""


def configure() -> None:
    """Makes automatic full collections rare; excludes all objects that exist now from them."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, RARELY)
    gc.collect()
    gc.freeze()


LONG_S: Final = 0.02
"""A collection that takes longer excludes all objects that are left from the following ones."""
COLLECTIONS_PER_THAW: Final = 60
"""After so many collections, those objects are included again: some may be garbage."""


class GarbageCollector:
    """The planned collections of a process."""

    def __init__(self) -> None:
        self._since_freeze: int | None = None
        """How many collections have left objects out; None if none are left out."""

    def collect(self) -> None:
        """Collects the garbage of all generations."""
        if self._since_freeze == COLLECTIONS_PER_THAW:
            gc.unfreeze()
            self._since_freeze = None
        start = time.thread_time()
        gc.collect()
        if time.thread_time() - start > LONG_S:
            gc.freeze()
            self._since_freeze = self._since_freeze or 0
        if self._since_freeze is not None:
            self._since_freeze += 1


async def collect_garbage() -> None:
    """Collects the garbage of all generations regularly. It runs until it is cancelled."""
    configure()
    collector = GarbageCollector()
    while True:
        await asyncio.sleep(INTERVAL_S)
        collector.collect()
