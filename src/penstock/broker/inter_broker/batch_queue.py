"""Small requests to one broker, sent as one: those that arrive while another is in flight.

queue = BatchQueue(send, key=lambda item: item.producer_id)
outcome = await queue.put(item)
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from penstock.core.errors import KafkaError, drop_traceback

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class BatchQueue(Generic[Item, Outcome]):
    """The items for one broker. It belongs to the event loop.

    `send` returns the outcomes in the order of the items; a KafkaError becomes that of every item.
    Items with the same `key` are never in one batch, because the response identifies them by it.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]],
        key: Callable[[Item], Hashable],
    ) -> None:
        self._send = send
        self._key = key
        self._waiting: deque[tuple[Item, asyncio.Future[Outcome]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def put(self, item: Item) -> Outcome:
        """Returns the outcome of an item; raises KafkaError if it could not be sent."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await future

    async def _run(self) -> None:
        batch: list[tuple[Item, asyncio.Future[Outcome]]] = []
        try:
            while self._waiting:
                batch = self._take()
                await self._send_batch(batch)
        finally:
            self._task = None
            for _, future in (*batch, *self._waiting):
                future.cancel()  # has no effect on one that is done
            self._waiting.clear()

    def _take(self) -> list[tuple[Item, "asyncio.Future[Outcome]"]]:
        batch: dict[Hashable, tuple[Item, asyncio.Future[Outcome]]] = {}
        rest: deque[tuple[Item, asyncio.Future[Outcome]]] = deque()
        for entry in self._waiting:
            key = self._key(entry[0])
            if entry[1].done():
                continue
            if key in batch:
                rest.append(entry)
            else:
                batch[key] = entry
        self._waiting = rest
        return list(batch.values())

    async def _send_batch(self, batch: list[tuple[Item, "asyncio.Future[Outcome]"]]) -> None:
        if not batch:
            return
        try:
            outcomes = await self._send([item for item, _ in batch])
        except KafkaError as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(drop_traceback(error))
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)
