"""Garbage collection that does not stop the event loop in the middle of a large request.

A full collection visits every object that can be part of a cycle, with all threads stopped: 0.1 s
for a million objects. Python starts one whenever the number of objects has grown by a quarter, so
several during a request with 100,000 elements, whose objects are freed without it anyway.
"""

import asyncio
import gc
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


async def collect_garbage() -> None:
    """Collects the garbage of all generations regularly. It runs until it is cancelled."""
    configure()
    while True:
        await asyncio.sleep(INTERVAL_S)
        gc.collect()
