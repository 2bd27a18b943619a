"""Runs the controller's decisions: one at a time, committed first, then told to everybody.

    response = await controller.run(lambda image: create_topics(image, …))

A decision is made on the image, its changes are committed to the store on a thread, the logs of new
partitions are made on a thread, then the image takes the changes over, and the listeners (replicas,
authorizer, quotas, settings) hear of them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change
from penstock.controller.result import ControllerResult

R = TypeVar("R")
Listener = Callable[[Sequence[Change]], None]
Preparation = Callable[[Sequence[Change]], Coroutine[Any, Any, None]]


class ControllerHost:
    """The host of the controller machine."""

    def __init__(self, image: ClusterImage, store: MetadataStore, workers: Workers) -> None:
        self.image = image
        self.listeners: list[Listener] = []
        self.preparations: list[Preparation] = []
        """What takes its time and must be done before anybody sees the changes."""
        self._store = store
        self._workers = workers
        self._turn = asyncio.Lock()

    async def run(self, decide: Callable[[ClusterImage], ControllerResult[R]]) -> R:
        """Decides when its turn comes; returns the response once the changes are durable."""
        async with self._turn:
            result = decide(self.image)
            changes = result.changes
            if changes:
                await self._workers.run(self._workers.store, lambda: self._store.commit(changes))
                for prepare in self.preparations:
                    await prepare(changes)
                self.image.apply(changes)
                for listener in self.listeners:
                    listener(changes)
            return result.response
